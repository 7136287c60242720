"""Files that appear whole or not at all, locks that say who holds them, temporary folders that do not outlive us."""
