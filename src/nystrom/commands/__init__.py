"""The ``nystrom`` command, one module per subcommand."""
