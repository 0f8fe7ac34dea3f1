"""`python -m nmt`: the same as the `nmt` command."""

from nmt.cli import main

if __name__ == "__main__":
    main()
