"""`model.quantize: aqlm`: an AQLM folder made of any supported checkpoint, of demonstration quality."""
