//! `reports.webhooks`: messages to chats. Their addresses are secrets: everybody who knows an address can post there.

use std::path::PathBuf;

use crate::read::{At, Reader, choice, table};
use crate::settings::when::When;
use crate::value::text::Words;
use crate::value::variable::Variable;

table! {
    /// A message to a chat.
    WebhookFile {
        /// Kind of chat.
        #[schemars(required)]
        chat: ChatFile,
        /// Environment variable with the address, `https://…`.
        #[schemars(required)]
        #[schemars(extend("examples" = ["${SLACK_URL}"]))]
        url: Variable,
        /// Environment variable with the key that signs messages (Lark).
        #[schemars(extend("examples" = ["${LARK_SECRET}"]))]
        secret: At<Variable>,
        /// When to send it.
        #[schemars(extend("default" = "changed"))]
        when: When,
        /// File of certificates (PEM) to trust, instead of those of the system.
        ca: Words,
    }
}

choice! {
    /// Kind of chat.
    pub enum ChatFile ("a chat") {
        /// Slack.
        Slack = "slack",
        /// Microsoft Teams, through a workflow.
        Teams = "teams",
        /// Lark or Feishu.
        Lark = "lark",
    }
}

/// A message to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Webhook {
    /// Kind of chat.
    pub chat: ChatFile,
    /// Environment variable with the address.
    pub url: String,
    /// Environment variable with the key that signs messages.
    pub secret: Option<String>,
    /// When to send it.
    pub when: When,
    /// Certificates to trust, instead of those of the system.
    pub ca: Option<PathBuf>,
}

impl Webhook {
    pub(crate) fn check(file: At<WebhookFile>, reader: &mut Reader<'_>) -> Option<Self> {
        let At { value: WebhookFile { chat, url, secret, when, ca }, span } = file;
        for (missing, key, hint) in [
            (chat.is_none(), "chat", "add `chat: slack`, `teams` or `lark`"),
            (url.is_none(), "url", "add `url: \"${CHAT_URL}\"`"),
        ] {
            if missing && !reader.has_error_below(&span) {
                reader
                    .error(&span, format!("the webhook has no `{key}`"))
                    .label("incomplete")
                    .hint(Some(hint));
            }
        }
        if let (Some(secret), Some(chat)) = (&secret, chat.filter(|chat| *chat != ChatFile::Lark)) {
            reader
                .error(&secret.span, format!("messages to {} are not signed", chat.name()))
                .label("only Lark has a `secret`")
                .hint(None::<&str>);
        }
        Some(Self {
            chat: chat?,
            url: url?.0,
            secret: secret.map(|At { value: Variable(name), .. }| name),
            when: when.unwrap_or(When::Changed),
            ca: ca.map(|Words(path)| path.into()),
        })
    }
}
