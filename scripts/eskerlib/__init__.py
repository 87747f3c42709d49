"""What Esker's scripts share: the build's environment, private servers, a small client, tables of results."""
