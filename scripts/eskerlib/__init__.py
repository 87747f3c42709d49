"""What Esker's scripts, benchmarks and server tests share: the build's environment, private servers, a small client, tables of results."""
