"""Files that appear whole or not at all, locks that name their holder, temporary folders that end with the process."""
