"""The runner's command line, its output as events, failures explained."""
