//! Messages for chats: Slack, Teams, Lark. The rules are those of mail: changes first, the worst tests, no flood of
//! messages.
//!
//! Names from outside appear only where the chat formats nothing (plain text, code). Every message fits the smallest
//! limit of all: Lark 20 KB, Teams 28 KB.

use memgate_model::RunReport;
use serde_json::{Value, json};

use crate::changes::Changes;
use crate::mail::{Surroundings, culprit_of};
use crate::summary::{in_short, statistics};
use crate::visible::visible;
use crate::words::symbol;
use crate::worst::not_passed;

/// The chat service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Chat {
    /// Slack, Block Kit.
    Slack,
    /// Teams, an Adaptive Card for a workflow.
    Teams,
    /// Lark, also called Feishu.
    Lark,
}

const TESTS: usize = 10;
/// Longest name or reason, in characters.
const LONGEST: usize = 280;
/// Size limit of a body, in bytes.
const MOST: usize = 20_000;

/// The body to post.
#[must_use]
pub fn chat(report: &RunReport, changes: &Changes, around: &Surroundings, to: Chat) -> Value {
    let on = around.on();
    let tests = not_passed(report);
    let who = culprit_of(&tests, changes).map_or_else(String::new, |line| format!("{line} · "));
    let words = changes.in_words(report);
    let title = short(&format!("{} {}: {who}{words}{on}", symbol(report.verdict), report.project));
    let mut lines: Vec<(String, String)> = Vec::new();
    for at in tests.iter().take(TESTS) {
        let figure = statistics(at.test).first().map_or_else(String::new, |figure| format!(": {figure}"));
        lines.push((short(&at.qualified()), short(&(in_short(at.test) + &figure))));
    }
    for (id, ended) in changes.gone.iter().take(TESTS) {
        let state = if ended.fixed { "fixed" } else { "gone" };
        lines.push((short(&format!("{state}: {}", ended.line)), short(&format!("{id} in {}", ended.suite))));
    }
    for problem in report.errors.iter().take(TESTS) {
        lines.push((short(&problem.r#where), short(&problem.what)));
    }
    let summary = short(&around.summary(report));
    let link = around.link();
    let render = match to {
        Chat::Slack => slack,
        Chat::Teams => teams,
        Chat::Lark => lark,
    };
    let mut more = tests.len().saturating_sub(TESTS);
    loop {
        let rest = (more > 0).then(|| (format!("{more} more"), String::new()));
        let shown: Vec<_> = lines.iter().cloned().chain(rest).collect();
        let body = render(&title, &summary, &shown, link);
        // Non-ASCII characters take up to four bytes, and escapes take more.
        if lines.is_empty() || body.to_string().len() < MOST {
            return body;
        }
        lines.pop();
        more += 1;
    }
}

fn slack(title: &str, summary: &str, lines: &[(String, String)], link: Option<(&str, &str)>) -> Value {
    let escape =
        |text: &str| text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('`', "'");
    let section = |text: String| json!({"type": "section", "text": {"type": "mrkdwn", "text": text}});
    let plain =
        |text: &str| json!({"type": "section", "text": {"type": "plain_text", "text": text, "emoji": false}});
    let header: String = title.chars().take(150).collect();
    let mut blocks =
        vec![json!({"type": "header", "text": {"type": "plain_text", "text": header}}), plain(summary)];
    blocks.extend(lines.iter().map(|(name, text)| {
        // Slack formats text and notifies people in it, except in code.
        let text = if text.is_empty() { String::new() } else { format!("\n`{}`", escape(text)) };
        section(format!("`{}`{text}", escape(name)))
    }));
    if let Some((words, url)) = link {
        let button = json!({"type": "button", "text": {"type": "plain_text", "text": words}, "url": url});
        blocks.push(json!({"type": "actions", "elements": [button]}));
    }
    json!({"text": escape(title), "blocks": blocks})
}

fn teams(title: &str, summary: &str, lines: &[(String, String)], link: Option<(&str, &str)>) -> Value {
    // A text block interprets Markdown; text runs are plain.
    let rich = |runs: Vec<Value>| json!({"type": "RichTextBlock", "inlines": runs});
    let run = |text: &str, bold: bool| json!({"type": "TextRun", "text": text, "weight": if bold { "Bolder" } else { "Default" }});
    let mut body = vec![rich(vec![run(title, true)]), rich(vec![run(summary, false)])];
    body.extend(
        lines.iter().map(|(name, text)| rich(vec![run(name, true), run(&format!("  {text}"), false)])),
    );
    let mut card = json!({
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard", "version": "1.4", "body": body,
    });
    if let Some((words, url)) = link {
        card["actions"] = json!([{"type": "Action.OpenUrl", "title": words, "url": url}]);
    }
    json!({"type": "message", "attachments": [{"contentType": "application/vnd.microsoft.card.adaptive", "content": card}]})
}

fn lark(title: &str, summary: &str, lines: &[(String, String)], link: Option<(&str, &str)>) -> Value {
    let plain = |text: &str| json!({"tag": "div", "text": {"tag": "plain_text", "content": text}});
    let mut elements = vec![plain(summary)];
    elements.extend(lines.iter().map(|(name, text)| plain(&format!("{name}\n{text}"))));
    if let Some((words, url)) = link {
        let button = json!({"tag": "button", "text": {"tag": "plain_text", "content": words}, "url": url, "type": "default"});
        elements.push(json!({"tag": "action", "actions": [button]}));
    }
    json!({"msg_type": "interactive", "card": {"header": {"title": {"tag": "plain_text", "content": title}}, "elements": elements}})
}

fn short(text: &str) -> String {
    let text = visible(text);
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.into_owned(),
    }
}

#[cfg(test)]
mod tests {
    use memgate_model::{Leak, TestReport};

    use super::*;
    use crate::sample;

    fn of(report: &RunReport, to: Chat) -> Value {
        let around = Surroundings { branch: "main".to_owned(), ..Surroundings::default() };
        chat(report, &Changes::since(&[], report), &around, to)
    }

    #[test]
    fn every_chat_is_told_what_changed_and_the_worst_tests() {
        for to in [Chat::Slack, Chat::Teams, Chat::Lark] {
            let text = of(&sample::leak(), to).to_string();
            for part in [
                "tiles: MapCache::insert leaks 48.0 KiB per run · src/map_cache.cpp:88 · 1 new leak in engine_tests on main",
                "engine_tests::MapCache.scroll",
                "MapCache::insert leaks 48.0 KiB per run",
            ] {
                assert!(text.contains(part), "{to:?}: {text}");
            }
        }
    }

    /// Regression: the title named the known leak of the worst test, and a mail the first new one, however small.
    #[test]
    fn a_title_names_the_largest_of_the_new_leaks() {
        let mut before = sample::leak();
        let tests = &mut before.suites[0].tests;
        tests.push(TestReport { id: "MapCache.zoom".to_owned(), ..tests[1].clone() });
        tests[1].leaks[0].bytes_per_iteration = 1e6;
        let mut now = before.clone();
        for (at, id, bytes) in [(1, "n1-small", 8.0), (2, "n1-large", 2048.0)] {
            let leaks = &mut now.suites[0].tests[at].leaks;
            let bytes_per_iteration = bytes;
            leaks.push(Leak { id: id.to_owned(), bytes_per_iteration, ..leaks[0].clone() });
        }
        let changes = Changes::since(&[before], &now);
        let around = Surroundings::default();
        let said = "MapCache::insert leaks 2.0 KiB per run";
        let title = chat(&now, &changes, &around, Chat::Slack)["text"].to_string();
        assert!(title.contains(said), "{title}");
        let subject = crate::mail::mail(&now, &changes, &around, None).unwrap().subject;
        assert!(subject.contains(said), "{subject}");
    }

    #[test]
    fn messages_stay_within_what_chats_take() {
        let mut report = sample::hostile();
        let test = report.suites[0].tests[0].clone();
        report.suites[0].tests = vec![test; 500];
        for to in [Chat::Slack, Chat::Teams, Chat::Lark] {
            let text = of(&report, to).to_string();
            assert!(text.len() < 20_000, "{to:?}: {} bytes", text.len());
        }
        let slack = of(&report, Chat::Slack);
        let last = slack["blocks"].as_array().unwrap().last().unwrap().to_string();
        assert!(last.contains("490 more"), "{last}");
        assert!(slack["blocks"].as_array().unwrap().len() <= 50);
        assert!(slack["blocks"][0]["text"]["text"].as_str().unwrap().chars().count() <= 150);
    }

    #[test]
    fn what_does_not_fit_in_bytes_is_counted() {
        let mut report = sample::hostile();
        let mut test = report.suites[0].tests[0].clone();
        test.id = "地图缓存测试.".to_owned() + &"当瓦片过期时缓存必须释放".repeat(30);
        report.suites[0].tests = vec![test; 10];
        let problem = |index: usize| memgate_model::Problem {
            r#where: format!("{index}") + &"套件".repeat(200),
            what: "无法测量".repeat(60),
            hint: String::new(),
        };
        report.errors = (0..10).map(problem).collect();
        for to in [Chat::Slack, Chat::Teams, Chat::Lark] {
            let text = of(&report, to).to_string();
            assert!(text.len() < MOST, "{to:?}: {} bytes", text.len());
            assert!(text.contains("地图缓存测试") && text.contains(" more"), "{to:?}");
        }
    }

    #[test]
    fn a_name_calls_nobody_in_slack() {
        let mut report = sample::leak();
        report.suites[0].tests[1].id = "A.`<!channel>` *b*".to_owned();
        let text = of(&report, Chat::Slack)["blocks"][2]["text"]["text"].as_str().unwrap().to_owned();
        assert!(text.starts_with("`engine_tests::A.'&lt;!channel&gt;' *b*`\n`"), "{text}");
    }
}
