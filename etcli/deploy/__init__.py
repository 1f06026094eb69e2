"""What goes where on the device, and the sync that makes it so."""
