use super::*;

#[test]
fn a_stressor_left_out_has_a_reason_and_no_other_is() {
    let fiemap = "stress-ng: info:  [7] fiemap: FS_IOC_FIEMAP not supported, skipping stressor\n\
                  stress-ng: info:  [6] successful run completed in 1.03s";
    let reason = "fiemap: FS_IOC_FIEMAP not supported, skipping stressor".to_owned();
    assert_eq!(judge(Some(0), fiemap), Outcome::LeftOut(reason));
    let disabled = "stress-ng: info:  [5] disabled 'bind-mount' as it may hang or reboot the machine\n\
                    stress-ng: error: [5] No stress workers invoked";
    assert!(matches!(judge(Some(1), disabled), Outcome::LeftOut(_)));
    assert_eq!(judge(Some(0), "stress-ng: info:  [6] successful run completed in 1.03s"), Outcome::Passed);
}

#[test]
fn a_failure_is_one_whatever_else_was_said() {
    let printed = "stress-ng: fail:  [7] link: link failed, errno=2\n\
                stress-ng: info:  [7] link: skipping stressor";
    for status in [Some(1), Some(2), Some(124), None] {
        assert!(matches!(judge(status, printed), Outcome::Failed(_)), "{status:?}");
    }
    assert!(matches!(judge(Some(3), "no reason"), Outcome::Failed(_)));
}

#[test]
fn a_stressor_that_passes_on_ext4_is_left_out_for_a_known_reason_only() {
    let left_out = || Outcome::LeftOut("not supported".to_owned());
    let failed = || Outcome::Failed("errno=5".to_owned());
    assert!(is_worse("xattr", &left_out(), &Outcome::Passed));
    assert!(!is_worse("fiemap", &left_out(), &Outcome::Passed));
    assert!(is_worse("fiemap", &failed(), &Outcome::Passed), "a failure is never known");
    assert!(is_worse("xattr", &failed(), &left_out()));
    assert!(!is_worse("xattr", &left_out(), &left_out()));
    assert!(!is_worse("xattr", &failed(), &failed()));
    let complains = |of: &str| Outcome::Failed(format!("status Some(2)\nstress-ng: fail:  [7] link: {of}"));
    assert!(!is_worse("link", &complains("errno=5 of 77"), &complains("errno=5 of 78")));
    assert!(is_worse("link", &complains("data are not what was written"), &complains("errno=5")));
    assert!(is_worse("link", &failed(), &complains("errno=5")), "it did not end");
    assert!(!is_worse("xattr", &Outcome::Passed, &failed()));
}
