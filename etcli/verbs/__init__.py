"""Verbs that use several stages or look across them: smoke, doctor, inspect, bench."""
