"""A virtual device: an ADB daemon of our own that the stock adb binary connects to over loopback."""
