"""Groups of samples: ids or a membership matrix, and the labels that belong to groups."""
