"""`python -m nmt` is the command `nmt`."""

import sys

if __name__ == "__main__":
    if not sys.flags.safe_path:  # -m puts the working directory first: a file there must not pass for a library
        del sys.path[0]
    from nmt.cli import main

    main()
