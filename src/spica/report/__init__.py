"""What a sweep leaves behind: the terminal's tables, the HTML page, JSON and CSV, files to deploy from."""
