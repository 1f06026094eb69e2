"""`python -m etcli`: the same program as the console script."""

from etcli.cli.main import main

if __name__ == "__main__":
    main()
