"""Parts that all recipes share: command line, options, run, card, files, pictures and machine."""
