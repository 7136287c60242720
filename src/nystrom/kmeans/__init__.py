"""K-means on blocks of rows: seeding, assignment and Lloyd's iterations, as folds."""
