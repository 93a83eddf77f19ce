"""`python -m nmt` is the command `nmt`."""

from nmt.cli import main

if __name__ == "__main__":
    main()
