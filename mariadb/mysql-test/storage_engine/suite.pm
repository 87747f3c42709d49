# A warning that every server prints that loads a plugin younger than itself. Where a failed test makes the driver restart
# a server, it reports such lines to its master, which then hands the worker one test too many and dies of SIGPIPE at the end.
package My::Suite::StorageEngineEsker;
@ISA = qw(My::Suite);
push @::global_suppressions, qr/Plugin 'E(sker|SKER_[A-Z_]+)' is of maturity level/;
bless { };
