"""Prints what Python's own parser reads in a mail, as JSON: headers, parts, and which pictures the page shows."""
import email
import email.policy
import json
import re
import sys

with open(sys.argv[1], "rb") as file:
    mail = email.message_from_binary_file(file, policy=email.policy.default)
parts = []
for part in mail.walk():
    if not part.is_multipart():
        content = part.get_content()
        text = content if isinstance(content, str) else ""
        parts.append({
            "type": part.get_content_type(),
            "id": (part["Content-ID"] or "").strip("<>"),
            "disposition": part.get_content_disposition(),
            "begins": text[:40] if text else content[:8].hex(),
            "text": text,
        })
page = next(part["text"] for part in parts if part["type"] == "text/html")
print(json.dumps({
    "type": mail.get_content_type(),
    "headers": {name.lower(): str(value) for name, value in mail.items()},
    "defects": [str(defect) for part in mail.walk() for defect in part.defects],
    "parts": parts,
    "shown": re.findall(r'src="cid:([^"]+)"', page),
}))
