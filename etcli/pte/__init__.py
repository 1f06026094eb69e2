"""`.pte` files read without torch: methods, tensors, operators, delegates, memory plan, segments."""
