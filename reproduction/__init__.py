"""Reproduction of the paper: specifications, runner, rows, figures and checks of its claims."""
