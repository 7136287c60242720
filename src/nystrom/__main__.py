"""``python -m nystrom``: the command line."""

import sys

from nystrom.commands.main import main

if __name__ == "__main__":
    sys.exit(main())
