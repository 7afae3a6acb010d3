use super::super::abi::{GetxattrOut, OpenOut};
use super::super::tests::{connected, refusal};
use super::*;

/// A reply without error.
fn reply(unique: u64, body: &[&[u8]]) -> Vec<u8> {
    let body = body.concat();
    let length = u32::try_from(16 + body.len()).unwrap();
    [&length.to_ne_bytes()[..], &[0; 4], &unique.to_ne_bytes(), &body].concat()
}

#[test]
fn replies_have_a_header_and_the_requested_data() {
    let (kernel, channel) = connected();
    Reply::new(1, &channel).done();
    assert_eq!(kernel.reply(), reply(1, &[]));
    Reply::new(2, &channel).error(Errno::NOENT);
    assert_eq!(kernel.reply(), refusal(2, Errno::NOENT));
    assert_eq!(i32::from_ne_bytes(refusal(2, Errno::NOENT)[4..8].try_into().unwrap()), -2);
    Reply::new(3, &channel).bytes(b"contents");
    assert_eq!(kernel.reply(), reply(3, &[b"contents"]));
    let size = GetxattrOut { size: 9, padding: 0 };
    Reply::new(4, &channel).structure(&size);
    assert_eq!(kernel.reply(), reply(4, &[&[9, 0, 0, 0, 0, 0, 0, 0]]));
    let opened = OpenOut { fh: 0x0102, open_flags: 2, backing_id: 0 };
    Reply::new(5, &channel).structures(&size, &opened);
    assert_eq!(kernel.reply(), reply(5, &[size.as_bytes(), opened.as_bytes()]));
    assert_eq!(opened.as_bytes(), [2, 1, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0]);
}

#[test]
fn a_dropped_reply_answers_with_an_error() {
    let (kernel, channel) = connected();
    drop(Reply::new(1, &channel));
    assert_eq!(kernel.reply(), refusal(1, Errno::IO));
    assert!(kernel.reply_if_any().is_err(), "once");
    drop(kernel);
    Reply::new(2, &channel).done();
}

#[test]
fn entries_are_added_while_they_fit() {
    let mut listing = Listing::new(32 + 40);
    assert!(listing.add(5, 6, 8, b"eight ch"));
    assert!(!listing.add(5, 7, 8, b"seventeen letters"), "it needs 48");
    assert!(listing.add(9, 8, 4, b"sixteen letters!"));
    assert!(!listing.add(9, 9, 4, b""));
    let expected = [
        &[5, 0, 0, 0, 0, 0, 0, 0, 6, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 8, 0, 0, 0][..],
        b"eight ch",
        &[9, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 16, 0, 0, 0, 4, 0, 0, 0],
        b"sixteen letters!",
    ];
    assert_eq!(listing.as_bytes(), expected.concat());
}

#[test]
fn entries_are_padded_to_eight_bytes() {
    let entry = EntryOut { nodeid: 3, ..EntryOut::default() };
    let mut listing = Listing::new(4096);
    assert!(listing.add_plus(&entry, (3, 4, 8), b"abc"));
    assert_eq!(listing.as_bytes().len(), 128 + 24 + 8);
    assert_eq!(&listing.as_bytes()[..128], entry.as_bytes());
    assert_eq!(&listing.as_bytes()[152..], b"abc\0\0\0\0\0");
    assert_eq!(Listing::new(u32::MAX).as_bytes(), b"");
}
