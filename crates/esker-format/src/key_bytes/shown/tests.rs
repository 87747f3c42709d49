use super::*;

fn told(shown: &Shown, value: &[u8]) -> Option<String> {
    let mut out = String::new();
    shown.tell(value, None, &mut out)?;
    Some(out)
}

#[track_caller]
fn check(shown: &Shown, value: &[u8], text: &str) {
    assert_eq!(told(shown, value).as_deref(), Some(text));
}

/// A date and time in bits.
fn bits(year: u64, month: u64, day: u64, [hour, minute, second]: [u64; 3]) -> Vec<u8> {
    let bits = (year * 13 + month) << 22 | day << 17 | hour << 12 | minute << 6 | second;
    ((1u64 << 39) + bits).to_be_bytes()[3..].to_vec()
}

#[test]
fn dates_and_times_in_bits() {
    use TimeForm::Bits;
    let date = |year: u32, month: u32, day: u32| (year << 9 | month << 5 | day).to_le_bytes()[..3].to_vec();
    check(&Shown::Date, &date(2026, 1, 2), "'2026-01-02'");
    check(&Shown::Date, &date(9999, 12, 31), "'9999-12-31'");
    check(&Shown::Date, &date(0, 0, 0), "'0000-00-00'");
    for (year, four, two) in [(126, "2026", "26"), (1, "1901", "01"), (100, "2000", "00"), (0, "0000", "00")] {
        check(&Shown::Year { digits: 4 }, &[year], four);
        check(&Shown::Year { digits: 2 }, &[year], two);
    }
    let with = |mut bytes: Vec<u8>, fraction: &[u8]| {
        bytes.extend_from_slice(fraction);
        bytes
    };
    let at = bits(2026, 1, 2, [3, 4, 5]);
    check(&Shown::DateTime(Bits, 0), &at, "'2026-01-02 03:04:05'");
    check(&Shown::DateTime(Bits, 1), &with(at.clone(), &[10]), "'2026-01-02 03:04:05.1'");
    check(&Shown::DateTime(Bits, 3), &with(at.clone(), &1230u16.to_be_bytes()), "'2026-01-02 03:04:05.123'");
    check(&Shown::DateTime(Bits, 6), &with(at.clone(), &[0, 0, 7]), "'2026-01-02 03:04:05.000007'");
    check(&Shown::DateTime(Bits, 0), &bits(9999, 12, 31, [23, 59, 59]), "'9999-12-31 23:59:59'");
    check(&Shown::DateTime(Bits, 0), &bits(0, 0, 0, [0; 3]), "'0000-00-00 00:00:00'");
    let time = |number: i64, bytes: usize| (number + (1 << (8 * bytes - 1))).to_be_bytes()[8 - bytes..].to_vec();
    check(&Shown::Time(Bits, 0), &time(12 << 12 | 34 << 6 | 56, 3), "'12:34:56'");
    check(&Shown::Time(Bits, 0), &time(-(838 << 12 | 59 << 6 | 59), 3), "'-838:59:59'");
    check(&Shown::Time(Bits, 2), &time(-50, 4), "'-00:00:00.50'");
    check(&Shown::Time(Bits, 3), &time((1 << 16) + 5000, 5), "'00:00:01.500'");
    check(&Shown::Time(Bits, 6), &time(-((1 << 24) + 1), 6), "'-00:00:01.000001'");
}

#[test]
fn dates_and_times_as_numbers() {
    use TimeForm::Number;
    check(&Shown::DateTime(Number, 0), &20260102030405u64.to_le_bytes(), "'2026-01-02 03:04:05'");
    check(&Shown::Time(Number, 0), &(-8_385_959i32).to_le_bytes()[..3], "'-838:59:59'");
    check(&Shown::Time(Number, 0), &123456i32.to_le_bytes()[..3], "'12:34:56'");
    let seconds = ((((2026 * 13 + 1) * 32 + 2) * 24 + 3) * 60 + 4) * 60 + 5u64;
    check(&Shown::DateTime(Number, 2), &(seconds * 100 + 67).to_be_bytes(), "'2026-01-02 03:04:05.67'");
    let zero = 3_020_400i64 * 1000;
    check(&Shown::Time(Number, 3), &(zero - 3_723_004).to_be_bytes()[3..], "'-01:02:03.004'");
    check(&Shown::Time(Number, 3), &(zero + 1).to_be_bytes()[3..], "'00:00:00.001'");
    let day = 1_767_323_045u32;
    check(&Shown::Timestamp(Number, 0), &day.to_le_bytes(), "'2026-01-02 03:04:05 UTC'");
    let with_fraction = [&day.to_be_bytes()[..], &[6]].concat();
    check(&Shown::Timestamp(Number, 1), &with_fraction, "'2026-01-02 03:04:05.6 UTC'");
}

#[test]
fn a_timestamp_is_in_the_readers_time_or_says_utc() {
    let shown = Shown::Timestamp(TimeForm::Bits, 3);
    let of = |seconds: u32, fraction: u16| [&seconds.to_be_bytes()[..], &fraction.to_be_bytes()].concat();
    check(&shown, &of(1_767_323_045, 1230), "'2026-01-02 03:04:05.123 UTC'");
    for (seconds, text) in [
        (1, "1970-01-01 00:00:01"),
        (951_782_399, "2000-02-28 23:59:59"),
        (951_782_400, "2000-02-29 00:00:00"),
        (951_868_800, "2000-03-01 00:00:00"),
        (1_735_689_599, "2024-12-31 23:59:59"),
        (4_107_542_400, "2100-03-01 00:00:00"),
        (u32::MAX, "2106-02-07 06:28:15"),
    ] {
        check(&Shown::Timestamp(TimeForm::Bits, 0), &seconds.to_be_bytes(), &format!("'{text} UTC'"));
    }
    let mut out = String::new();
    let local: &LocalTime = &|seconds| 20260102040000 + seconds as u64 % 100;
    shown.tell(&of(1_767_323_045, 1230), Some(local), &mut out).unwrap();
    shown.tell(&of(0, 0), Some(local), &mut out).unwrap();
    shown.tell(&of(0, 0), None, &mut out).unwrap();
    let none = "'0000-00-00 00:00:00.000'";
    assert_eq!(out, format!("'2026-01-02 04:00:45.123'{none}{none}"));
}

/// A decimal number's bytes, from its groups of digits.
fn decimal_bytes(groups: &[(u32, usize)], negative: bool) -> Vec<u8> {
    let mut bytes: Vec<u8> = groups.iter().flat_map(|(n, bytes)| n.to_be_bytes()[4 - bytes..].to_vec()).collect();
    bytes[0] ^= 0x80;
    if negative {
        bytes.iter_mut().for_each(|b| *b = !*b);
    }
    bytes
}

#[test]
fn decimal_numbers() {
    let of = |digits, decimals| Shown::Decimal { digits, decimals };
    check(&of(5, 2), &decimal_bytes(&[(12, 2), (50, 1)], false), "12.50");
    check(&of(5, 2), &decimal_bytes(&[(12, 2), (5, 1)], true), "-12.05");
    check(&of(5, 2), &decimal_bytes(&[(0, 2), (0, 1)], false), "0.00");
    check(&of(2, 2), &decimal_bytes(&[(7, 1)], true), "-0.07");
    check(&of(3, 0), &decimal_bytes(&[(999, 2)], false), "999");
    // 14 digits are 2 and 4 bytes before the point, 4 and 1 behind it.
    let groups = [(12345, 3), (6789, 4), (123_456_789, 4), (1, 1)];
    check(&of(24, 10), &decimal_bytes(&groups, false), "12345000006789.1234567891");
    assert_eq!(told(&of(5, 2), &[0x80, 0, 0, 0]), None, "too long");
    assert_eq!(told(&of(5, 2), &[0x80, 0]), None, "too short");
    assert_eq!(told(&of(2, 5), &[0x80, 0]), None);
    assert_eq!(told(&of(1, 0), &[0x80 | 10]), None, "more than a digit");
}

#[test]
fn names_of_numbers_and_bits() {
    let names = || ["red".to_owned(), "it's".to_owned()].to_vec();
    let (one, several) = (Shown::Enum(names()), Shown::Set(names()));
    check(&one, &[1], "'red'");
    check(&one, &[2, 0], "'it''s'");
    check(&one, &[0], "''");
    check(&several, &[3], "'red,it''s'");
    check(&several, &[0, 0], "''");
    assert_eq!((told(&one, &[3]), told(&several, &[4])), (None, None));
    check(&Shown::Set((0..64).map(|n| n.to_string()).collect()), &(1u64 << 63 | 1).to_le_bytes(), "'0,63'");
    check(&Shown::Bits, &[1, 0], "b'100000000'");
    check(&Shown::Bits, &[0], "b'0'");
    check(&Shown::Binary, b"a\0", "X'6100'");
}

#[test]
fn addresses_and_identifiers() {
    check(&Shown::Inet4, &[192, 168, 0, 1], "'192.168.0.1'");
    check(&Shown::Inet6, &[&[0x20, 1, 0xd, 0xb8][..], &[0; 11], &[1]].concat(), "'2001:db8::1'");
    let text = "'123e4567-e89b-12d3-a456-426614174000'";
    let by_node = [0x42, 0x66, 0x14, 0x17, 0x40, 0, 0xa4, 0x56, 0x12, 0xd3, 0xe8, 0x9b, 0x12, 0x3e, 0x45, 0x67];
    check(&Shown::Uuid, &by_node, text);
    let by_time = [0x12, 0x3e, 0x45, 0x67, 0xe8, 0x9b, 0x72, 0xd3, 0xa4, 0x56, 0x42, 0x66, 0x14, 0x17, 0x40, 0];
    check(&Shown::Uuid, &by_time, "'123e4567-e89b-72d3-a456-426614174000'");
}

#[test]
fn floating_point_numbers() {
    let text = |value: f64, most| {
        let mut out = String::new();
        float(value, most, &mut out);
        out
    };
    for (value, all, six) in [
        (0.0, "0", "0"),
        (-0.0, "0", "0"),
        (1.5, "1.5", "1.5"),
        (-0.25, "-0.25", "-0.25"),
        (f64::from(1.1f32), "1.100000023841858", "1.1"),
        (16_777_216.0, "16777216", "16777200"),
        (1e14, "100000000000000", "100000000000000"),
        (1e15, "1e15", "1e15"),
        (1_234_567_890_123_456.0, "1.234567890123456e15", "1.23457e15"),
        (12_345_678_901_234_567.0, "1.2345678901234568e16", "1.23457e16"),
        (1e-15, "0.000000000000001", "0.000000000000001"),
        (-1e-16, "-1e-16", "-1e-16"),
        (1.5e300, "1.5e300", "1.5e300"),
        (f64::INFINITY, "inf", "inf"),
    ] {
        assert_eq!((text(value, None).as_str(), text(value, Some(6)).as_str()), (all, six));
    }
    check(&Shown::Rounded(2), &1.5f32.to_le_bytes(), "1.50");
    check(&Shown::Rounded(0), &(-3f64).to_le_bytes(), "-3");
    assert_eq!(told(&Shown::Rounded(2), &[0; 3]), None);
}

#[test]
fn any_bytes_are_told_or_left_to_the_encoding() {
    let mut all = vec![Shown::Plain, Shown::Binary, Shown::Bits, Shown::Date, Shown::Inet4, Shown::Inet6];
    all.extend([Shown::Uuid, Shown::Enum(Vec::new()), Shown::Set(vec!["a".into(); 70])]);
    for n in [0, 1, 2, 3, 5, 6, 7, 18, 60, u8::MAX] {
        for form in [TimeForm::Bits, TimeForm::Number] {
            all.extend([Shown::DateTime(form, n), Shown::Timestamp(form, n), Shown::Time(form, n)]);
        }
        all.extend([Shown::Rounded(n), Shown::Decimal { digits: n, decimals: n / 2 }, Shown::Year { digits: n }]);
        all.push(Shown::Filled(Box::new(Shown::Rounded(n)), n));
    }
    let local: &LocalTime = &|_| u64::MAX;
    for shown in &all {
        for bytes in 0..20 {
            for byte in [0, 1, 0x7f, 0x80, 0xff] {
                let mut out = String::new();
                let told = shown.tell(&vec![byte; bytes], Some(local), &mut out);
                assert_eq!(told.is_none(), out.is_empty(), "{shown:?} of {bytes} times {byte}");
            }
        }
    }
}
