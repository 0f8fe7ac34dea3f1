"""Run the `nmt` command as `python -m nmt`."""

from nmt.cli import main

if __name__ == "__main__":
    main()
