"""What Esker's scripts, benchmarks and server tests share: the build's environment, private servers, their client, tables of results."""
