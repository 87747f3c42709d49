# The same keys, rows and questions for two engines: what they answer must be the same.
#
# Owns: the columns that keys are tried on, their values, and what is asked of them. compare(TYPES) writes one script of SQL
# for each engine, has the client run it, and prints the first line in which the answers differ; compare_sql(SQL) takes a
# script as it is.
use strict;
use warnings;

# [type, values]; a value that the type does not take is left out by IGNORE, alike in both engines.
my @integers = (-9223372036854775808, -2147483649, -2147483648, -8388608, -32769, -32768, -129, -128, -100, -2, -1, 0, 1,
    2, 9, 10, 100, 127, 128, 255, 256, 32767, 32768, 65535, 65536, 8388607, 16777215, 2147483647, 4294967295,
    9223372036854775807, "18446744073709551615");
my @reals = (@integers, "-1e30", "-1.5", "-0.001", "-0.0", "0.0", "0.001", "1.25", "1.5", "1e-30", "1e30", "3.4e38");
my @words = ("''", "' '", "'  '", "'a'", "'A'", "'a '", "'ab'", "'Ab'", "'aB '", "'abc'", "'abcd'", "'abcde'",
    "'ABCDE '", "'abcdef'", "'abcdefghi'", "'b'", "'B'", "'ba'", "'z'", "'zz'", "'0'", "'9'", "'10'", "'-'", "'a-b'",
    "'ch'", "'cz'", "'h'", "'ss'", "'ae'", "'oe'", "'ll'", "'lz'", "'dz'", "'aaaaaaaaaaaaaaaaa'", "'a b'");
my @letters = map {; "CONVERT(_utf8mb4 x'$_' USING %CS%)" } qw(c3a4 c384 c39f c3a9 c3a6 c3b1 c3b6 c3bc 61cc88 c48d c59f
    c4b1 c4b0 ce b1 ceb1 ce91 d0b0 d090 d7a9 d8a7 e0b881 e38182 e382a2 eab080 e4b880 efac81 61c3a4 c3a462 c3a42020 c3a409);
my @astral = map {; "CONVERT(_utf8mb4 x'$_' USING %CS%)" } qw(f09f9880 f0a08080 61f09f9880);
my @bytes = ("''", "x'00'", "x'0000'", "x'0001'", "x'01'", "x'20'", "x'2020'", "x'41'", "x'4100'", "x'410000'", "x'4120'",
    "x'4141'", "x'61'", "x'6162636465'", "x'616263646566'", "x'61626364656600'", "x'ff'", "x'ff00'", "x'ffff'", "x'ffffffffff'",
    "x'ffffffffffff'", "x'7f'", "x'80'");
my @dates = map {; "'$_'" } ("0000-00-00", "1000-01-01", "1969-12-31", "1970-01-01", "1999-12-31", "2000-01-00", "2000-01-01",
    "2000-02-29", "2026-11-23", "2038-01-19", "9999-12-31");
my @moments = (@dates, map {; "'$_'" } ("1970-01-02 00:00:01", "1999-12-31 23:59:59", "1999-12-31 23:59:59.999999",
    "2000-01-01 00:00:00.000001", "2000-01-01 00:00:00.1", "2000-01-01 00:00:00.5", "2000-01-01 12:00:00",
    "2026-11-23 08:00:00.123456", "2038-01-18 23:59:59.9"));
my @times = map {; "'$_'" } ("-838:59:59", "-838:59:58.9", "-100:00:00", "-00:00:01", "-00:00:00.5", "-00:00:00.000001",
    "00:00:00", "00:00:00.000001", "00:00:00.5", "00:00:01", "12:34:56", "12:34:56.789", "100:00:00", "838:59:59");

my %groups = (
    numbers => [
        (map { my $int = $_; map {; ["$int $_", \@integers] } ("SIGNED", "UNSIGNED") } qw(TINYINT SMALLINT MEDIUMINT INT BIGINT)),
        (map { [$_, \@reals] } "FLOAT", "DOUBLE", "DOUBLE UNSIGNED", "DECIMAL(5,2)", "DECIMAL(30,10)", "DECIMAL(65,0)"),
        ["BIT(1)", ["b'0'", "b'1'"]], ["BIT(13)", [map {; "$_" } 0, 1, 2, 255, 256, 4096, 8191]], ["BIT(64)", \@integers],
        ["YEAR", [0, 1901, 1970, 1999, 2000, 2026, 2155]],
        ["BOOLEAN", [0, 1]],
    ],
    moments => [
        ["DATE", \@dates],
        (map { my $type = $_; map {; ["$type($_)", \@moments] } (0, 1, 3, 6) } qw(DATETIME TIMESTAMP)),
        (map {; ["TIME($_)", \@times] } (0, 2, 4, 5, 6)),
    ],
    others => [
        ["ENUM('z','y','a','b','')", ["'z'", "'y'", "'a'", "'b'", "''"]],
        ["SET('r','q','p','o','n','m','l','k','j')", ["''", "'r'", "'q'", "'r,q'", "'j'", "'r,j'", "'k,l,m'"]],
        ["BINARY(6)", \@bytes, 3], ["VARBINARY(20)", \@bytes, 3], ["VARBINARY(300)", \@bytes, 3], ["BLOB", \@bytes, 5, "PREFIX"],
        ["TINYBLOB", \@bytes, 5, "PREFIX"], ["LONGBLOB", \@bytes, 2, "PREFIX"],
        ["INET6", [map {; "'$_'" } "::", "::1", "1::", "fe80::1", "ff::", "::ffff:1.2.3.4", "2001:db8::"]],
        ["INET4", [map {; "'$_'" } "0.0.0.0", "0.0.0.1", "1.0.0.0", "10.0.0.1", "32.32.32.32", "255.255.255.255"]],
        ["UUID", [map {; "'$_'" } "00000000-0000-0000-0000-000000000000", "00000000-0000-0000-0000-000000000001",
            "123e4567-e89b-12d3-a456-426655440000", "123e4567-e89c-12d3-a456-426655440000", "223e4567-e89b-12d3-a456-426655440000",
            "6ccd780c-baba-1026-9564-5b8c656024db", "6ccd780c-baba-1026-9564-0040f4311e29",
            "ffffffff-ffff-ffff-ffff-ffffffffffff"]],
        ["JSON", ["'1'", "'{}'", "'[1]'", "'\"a\"'"], 3, "PREFIX"],
    ],
);

sub texts {
    my ($collation) = @_;
    (my $charset = $collation) =~ s/_.*//;
    $charset = $1 if $collation =~ /^(utf8mb3|utf8mb4|ucs2|utf16le|utf16|utf32)/;
    my @more = map { (my $v = $_) =~ s/%CS%/$charset/; $v } @letters, $charset =~ /utf8mb4|utf16|utf32/ ? @astral : ();
    # Characters that weigh nothing count in CHAR here, and there not.
    my @plain = grep { !/61cc88/ } @more;
    my $is = "CHARACTER SET $charset COLLATE $collation";
    return (["CHAR(8) $is", [@words, @plain], 3], ["VARCHAR(20) $is", [@words, @more], 3], ["VARCHAR(90) $is", [@words, @more], 5],
        ["TEXT $is", [@words, @more], 4, "PREFIX"]);
}

# Questions to a table by one of its keys.
sub questions {
    my ($key, $values, $order, $is_text) = @_;
    my $from = "FROM t FORCE INDEX ($key)";
    my @sql;
    for my $columns ("id, HEX(v), w", "HEX(v)") {
        push @sql, map {; "SELECT $columns $from $_" }
            ("WHERE v IS NULL ORDER BY $order->[0]", "WHERE v IS NOT NULL ORDER BY $order->[0]", "WHERE v IS NOT NULL ORDER BY $order->[1]");
        push @sql, "SELECT $columns $from ORDER BY $_" for @$order;
    }
    my $n = 0;
    for my $value (@$values) {
        $n++;
        # Of values that are equal and differ the plan says which comes first.
        push @sql, "SELECT id, HEX(v), w $from WHERE v = $value ORDER BY " . ($is_text ? "id" : $order->[$n % 2]);
        for my $how ("<", "<=", ">", ">=") {
            my $columns = $n % 3 ? "id, w" : "HEX(v)";
            push @sql, "SELECT $columns $from WHERE v $how $value ORDER BY $order->[($n + length $how) % 2] LIMIT 7";
        }
        my $other = $values->[($n * 7) % @$values];
        push @sql, "SELECT id, w $from WHERE v BETWEEN $value AND $other ORDER BY $order->[$n % 2]";
        push @sql, "SELECT id, w $from WHERE v > $value AND v < $other ORDER BY $order->[1 - $n % 2]";
        push @sql, "SELECT id, w $from WHERE v IN ($value, $other, $values->[0]) ORDER BY $order->[$n % 2]";
    }
    if ($is_text) {
        push @sql, map {; "SELECT id, HEX(v) $from WHERE v LIKE '$_' ORDER BY $order->[0]" } "a%", "ab%", "A_c%", "abcde%", "%", "z%", " %", "ab";
    }
    return @sql;
}

sub script {
    my ($engine, $types) = @_;
    my @sql;
    for (@$types) {
        my ($type, $values, $prefix, $only) = @$_;
        my $is_text = $type =~ /COLLATE|JSON/;
        my $part = $prefix && "v($prefix)";
        my @keys;
        push @keys, "KEY k (v)", "KEY d (v DESC)", "KEY vw (v, w DESC)", "KEY wv (w, v)" unless $only;
        push @keys, "KEY p ($part)", "KEY pd ($part DESC, w)" if $prefix;
        push @sql, "SELECT " . quoted($type), "CREATE TABLE t (id INT PRIMARY KEY, v $type NULL, w SMALLINT NOT NULL, "
            . join(", ", @keys) . ") ENGINE=$engine";
        my $id = 1000;
        for my $round (0 .. 2) {
            for my $at (0 .. $#$values) {
                $id += 2 + ($at * 5 + $round) % 3;
                push @sql, "INSERT IGNORE INTO t VALUES ($id, $values->[($at * 11 + $round) % @$values], " . ($at * 7 + $round * 3) % 5 . ")";
            }
            push @sql, "INSERT INTO t VALUES (" . $id++ . ", NULL, $round), (" . $id++ . ", NULL, 1)";
        }
        push @sql, "FLUSH STATUS";
        my @all = @$values;
        if (!$only) {
            push @sql, questions("k", $values, ["v", "v DESC"], $is_text), questions("d", $values, ["v", "v DESC"], $is_text);
            push @sql, "SELECT HEX(v), w FROM t FORCE INDEX (vw) ORDER BY v, w DESC", "SELECT id, w FROM t FORCE INDEX (vw) ORDER BY v DESC, w";
            push @sql, "SELECT w, HEX(v) FROM t FORCE INDEX (wv) ORDER BY w, v", "SELECT id FROM t FORCE INDEX (wv) WHERE w = 2 ORDER BY v DESC";
            for my $value (@$values) {
                push @sql, "SELECT id, w FROM t FORCE INDEX (vw) WHERE v = $value ORDER BY w DESC";
                push @sql, "SELECT id, w FROM t FORCE INDEX (vw) WHERE v = $value AND w > 1 ORDER BY w";
                push @sql, "SELECT id, w FROM t FORCE INDEX (wv) WHERE w = 3 AND v <= $value ORDER BY v";
                push @sql, "SELECT id, HEX(v) FROM t FORCE INDEX (wv) WHERE w IN (1, 4) AND v > $value ORDER BY w, v";
            }
        }
        # What makes the server sort or read all rows shows here: nothing does.
        push @sql, "SHOW STATUS LIKE 'Sort_rows'", "SHOW STATUS LIKE 'Handler_read_rnd_next'" unless $prefix || $is_text;
        if (!$only) {
            push @sql, "SELECT HEX(MIN(v)), HEX(MAX(v)) FROM t", "SELECT MIN(w), MAX(w) FROM t WHERE v = $values->[-1]";
            push @sql, "SELECT HEX(MIN(v)), COUNT(*) FROM t FORCE INDEX (k) GROUP BY v", "SELECT COUNT(DISTINCT v) FROM t FORCE INDEX (k)";
            push @sql, "SELECT v IS NULL, MIN(w), MAX(w) FROM t FORCE INDEX (vw) GROUP BY v";
        }
        if ($prefix) {
            # By the beginnings alone the order is not known.
            push @sql, map {; "SELECT id, HEX(v) FROM t FORCE INDEX (p) WHERE v = $_ ORDER BY id",
                "SELECT id FROM t FORCE INDEX (pd) WHERE v >= $_ ORDER BY id", "SELECT id FROM t FORCE INDEX (p) WHERE v < $_ ORDER BY id" } @$values;
            push @sql, map {; "SELECT id FROM t FORCE INDEX (p) WHERE v LIKE '$_' ORDER BY id" } "a%", "abc%", "abcdef%" if $is_text;
        }
        # Changes by keys, then the same rows by every key as without any.
        my $key = $only ? "p" : "k";
        push @sql, "UPDATE t FORCE INDEX ($key) SET w = w + 10 WHERE v > $values->[0] AND w < 3";
        push @sql, "UPDATE IGNORE t SET v = $values->[$#$values / 2] WHERE w = 3";
        push @sql, "DELETE FROM t WHERE v = $values->[1] AND w <> 2";
        push @sql, "DELETE FROM t ORDER BY v DESC, id LIMIT 5" unless $only;
        push @sql, "SELECT id, HEX(v), w FROM t IGNORE INDEX (" . join(", ", map { /KEY (\w+)/ } @keys) . ") ORDER BY id";
        push @sql, map {; "SELECT id, HEX(v), w FROM t FORCE INDEX ($_) WHERE v IS NULL OR v >= $values->[2] OR v < $values->[2] ORDER BY id" }
            map { /KEY (\w+)/ } @keys;
        push @sql, "CHECK TABLE t", "DROP TABLE t";
        # No two the same.
        push @sql, "CREATE TABLE t (id INT PRIMARY KEY, v $type NULL, " . ($prefix && ($only || @$values % 2) ? "UNIQUE ($part)" : "UNIQUE (v)")
            . ") ENGINE=$engine";
        $id = 0;
        push @sql, map {; "INSERT IGNORE INTO t VALUES (" . ++$id . ", $_)" } @$values, "NULL", @$values, "NULL";
        push @sql, "SELECT id, HEX(v) FROM t ORDER BY id";
        push @sql, map {; "REPLACE INTO t VALUES (" . ++$id . ", $_)" } @$values[0 .. $#$values / 3];
        push @sql, "SELECT id, HEX(v) FROM t ORDER BY id";
        push @sql, map {; "INSERT IGNORE INTO t VALUES (" . ++$id . ", $_) ON DUPLICATE KEY UPDATE id = id + 100000" } @$values[$#$values / 2 .. $#$values];
        push @sql, "UPDATE IGNORE t SET v = $values->[3] WHERE id % 7 = 0", "SELECT id, HEX(v) FROM t ORDER BY id", "DROP TABLE t";
    }
    return join("", map {; "$_;\n" } @sql);
}

sub quoted { (my $text = $_[0]) =~ s/'/''/g; return "'$text'" }

sub compare {
    my ($types, $settings) = @_;
    compare_answers(sub { "SET NAMES utf8mb4; SET sql_mode = ''; $settings;\n" . script($_[0], $types) });
}

# Of SQL in which ENGINE=? stands for either engine. InnoDB checks nothing: while it purges entries of virtual columns it counts
# them wrong.
sub compare_sql {
    my ($what, $sql) = @_;
    print "$what: ";
    compare_answers(sub {
        my ($engine) = @_;
        (my $mine = $sql) =~ s/ENGINE=\?/ENGINE=$engine/g;
        $mine =~ s/^(CHECK TABLE \w+) EXTENDED;/$1 FOR UPGRADE;/gm if $engine eq "InnoDB";
        return $mine;
    });
}

sub compare_answers {
    my ($script_of) = @_;
    my @answers;
    for my $engine ("Esker", "InnoDB") {
        my $base = "$ENV{MYSQLTEST_VARDIR}/tmp/keys_$engine";
        open(my $sql, ">", "$base.sql") or die "$base.sql: $!";
        print $sql $script_of->($engine);
        close $sql;
        system("$ENV{MYSQL} --force --verbose --default-character-set=utf8mb4 -N test < $base.sql > $base.out 2> $base.err");
        my @lines;
        for my $file ("$base.out", "$base.err") {
            open(my $out, "<", $file) or die "$file: $!";
            push @lines, map { s/ ENGINE=$engine//r =~ s/ FOR UPGRADE/ EXTENDED/r } <$out>;
        }
        push @answers, \@lines;
    }
    my ($ours, $theirs) = @answers;
    my ($type, $statement) = ("", "");
    for my $at (0 .. ($#$ours > $#$theirs ? $#$ours : $#$theirs)) {
        my ($a, $b) = ($ours->[$at] // "(nothing)\n", $theirs->[$at] // "(nothing)\n");
        if ($a ne $b) {
            print "They differ at line ", $at + 1, "\n  $type  $statement  Esker: $a  InnoDB: $b";
            return;
        }
        $statement = $a if $at && $ours->[$at - 1] =~ /^-{14}$/ && $a ne "\n";
        $type = $a if $a =~ /^CREATE TABLE/;
    }
    print @$ours > 100 ? "the same\n" : "too few answers: @$ours\n";
}

sub compare_group { my ($group, $settings) = @_; compare($groups{$group}, $settings // "SELECT 1") }
sub compare_collation { print "$_[0]: "; compare([texts($_[0])], "SELECT 1") }
1;
