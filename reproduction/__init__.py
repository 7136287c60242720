"""The paper, reproduced: specifications, runner, rows, figures and checks of its claims."""
