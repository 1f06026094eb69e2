"""Where it runs: the Device interface, adb, and the virtual device."""
