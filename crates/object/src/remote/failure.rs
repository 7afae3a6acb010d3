//! What a failed request means, in words. The store's own words can contain what was signed, so that only its code and
//! its message are shown.

use std::error::Error as _;
use std::io;

use crate::store::StoreError;

/// An object cannot be created because there is nothing to put it into.
pub(super) const NO_BUCKET: &str =
    "the bucket or directory does not exist; correct the URL, or create it with the tools of the store";

/// The code for a right that is missing. Not every request has it as an error of its own.
const FORBIDDEN: &str = "AccessDenied";

/// The codes with which a store refuses credentials.
const WRONG_CREDENTIALS: [&str; 5] =
    ["InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidToken", "ExpiredToken", "InvalidClientTokenId"];

/// The error of a request for an object. `is_first` means that the store has never answered.
pub(super) fn failure(name: &str, error: object_store::Error, is_first: bool) -> StoreError {
    use object_store::Error::{NotFound, PermissionDenied, Unauthenticated};
    let said = error.to_string();
    let code = between(&said, "<Code>", "</Code>");
    let (root, is_forbidden) = root_of(&error);
    let refused = |why: String| StoreError::Refused(why);
    match (&error, code) {
        (_, Some("NoSuchBucket")) => refused(NO_BUCKET.to_owned()),
        (NotFound { .. }, _) => StoreError::NotFound(name.to_owned()),
        (_, Some(code)) if WRONG_CREDENTIALS.contains(&code) => refused(format!(
            "the store does not accept the credentials ({code}); check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and \
             AWS_SESSION_TOKEN in the environment"
        )),
        (PermissionDenied { .. } | Unauthenticated { .. }, _) | (_, Some(FORBIDDEN)) => refused(format!(
            "the store refuses access to {name}{}; check the credentials and their rights",
            in_parentheses(code, between(&said, "<Message>", "</Message>"))
        )),
        _ if is_forbidden => {
            refused(format!("permission denied for {name}; run this as a user with access to it"))
        }
        (_, Some(code)) => StoreError::Failed(format!(
            "the store failed for {name}{}",
            in_parentheses(Some(code), between(&said, "<Message>", "</Message>"))
        )),
        _ if is_first => StoreError::Failed(format!(
            "the store cannot be reached ({root}); check the network and AWS_ENDPOINT_URL"
        )),
        _ => StoreError::Failed(format!("the request for {name} failed ({root})")),
    }
}

fn in_parentheses(code: Option<&str>, message: Option<&str>) -> String {
    let words: Vec<&str> = [code, message].into_iter().flatten().collect();
    if words.is_empty() { String::new() } else { format!(" ({})", words.join(": ")) }
}

/// The words of the first cause in one line, and whether the system denies access to a file.
fn root_of(error: &object_store::Error) -> (String, bool) {
    let (mut root, mut source) = (error.to_string(), error.source());
    let mut is_forbidden = false;
    while let Some(cause) = source {
        root = cause.to_string();
        let kind = cause.downcast_ref::<io::Error>().map(io::Error::kind);
        is_forbidden |= kind == Some(io::ErrorKind::PermissionDenied);
        source = cause.source();
    }
    let line = root.split_whitespace().collect::<Vec<_>>().join(" ");
    (without_body(&line), is_forbidden)
}

/// What the client says about an answer, without the body of the answer: a server or proxy may repeat the request in it,
/// with what was signed.
fn without_body(line: &str) -> String {
    if let Some(answer) = line.strip_prefix("Server returned non-2xx status code: ") {
        return format!("it answers with status {}", answer.split(':').next().unwrap_or_default());
    }
    if line.starts_with("Server returned error response") {
        return "it answers with an error".to_owned();
    }
    line.to_owned()
}

fn between<'a>(text: &'a str, start: &str, end: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(start)?;
    Some(rest.split_once(end)?.0)
}
