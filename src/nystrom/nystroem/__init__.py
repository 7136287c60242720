"""From landmarks to the map: the pass of a fit, its statistics, the factor."""
