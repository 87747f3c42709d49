# Esker's own suite: runs only where the plugin was built for this server.
package My::Suite::Esker;
@ISA = qw(My::Suite);
return "ha_esker.so is not there; run 'make build'" unless $ENV{HA_ESKER_SO};
bless { };
