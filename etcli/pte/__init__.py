""".pte files read without torch: methods, tensors, backends, operators, segments."""
