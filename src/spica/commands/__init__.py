"""What each command does; ``spica.cli`` holds only their arguments. Imported when a command runs."""
