//! Signing in, and the account shown on pages.

use memgate_reports::page::Html;

use super::frame::page;
use super::parts;
use crate::percent::encoded;

/// The reader, as a page shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Own {
    /// Nothing requires signing in.
    Everybody,
    /// Nobody is signed in.
    Nobody,
    /// An account is signed in.
    SignedIn {
        /// Its name.
        name: String,
        /// The value that the form to sign out sends back.
        form: String,
    },
}

/// The form to sign in.
#[must_use]
pub fn login(next: &str, wrong: Option<&str>) -> String {
    page("Sign in", |html| {
        html.markup("<header><h1>Sign in</h1></header>\n<main id=main>\n");
        if let Some(wrong) = wrong {
            html.markup("<p class=reason role=alert>").text(wrong).markup("</p>\n");
        }
        html.markup("<form id=tools method=post action=\"/login\"><input type=hidden name=next");
        html.attribute("value", next);
        html.markup("><label>Name <input name=name autocomplete=username autofocus required></label>");
        html.markup("<label>Password <input name=password type=password autocomplete=current-password required></label>");
        html.markup("<button>Sign in</button></form>\n<p>Accounts are made on the server's machine: <code>memgate serve user add</code>.</p></main>\n");
    })
}

/// Page if something does not exist, or is only for members; `why`: what does not exist; `next`: where to go after
/// signing in.
#[must_use]
pub fn not_found(why: &str, next: Option<&str>) -> String {
    page("Not found", |html| {
        html.markup("<header><h1>Not found</h1></header>\n<main id=main>\n");
        html.element("p", &format!("Not found: {why}."));
        html.markup("<p>");
        parts::anchor(html, "/", "projects");
        if let Some(next) = next {
            html.markup(" · ");
            parts::anchor(html, &format!("/login?next={}", encoded(next)), "sign in");
            html.markup(", if it is for members");
        }
        html.markup("</p></main>\n");
    })
}

/// The account with a button to sign out, or a link to sign in.
pub(super) fn own(html: &mut Html, own: &Own) {
    match own {
        Own::Everybody => {}
        Own::Nobody => {
            html.markup("<p class=crumb>");
            parts::anchor(html, "/login", "sign in");
            html.markup(" to see projects that are for members</p>\n");
        }
        Own::SignedIn { name, form } => {
            html.markup("<form id=tools method=post action=\"/logout\"><input type=hidden name=form");
            html.attribute("value", form).markup("><span>").text(name);
            html.markup("</span> <button>Sign out</button></form>\n");
        }
    }
}
