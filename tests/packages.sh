# Sourced. packages PACKAGE:SIGN…: installs each Debian or Ubuntu package whose sign is missing. A sign is a file, or a
# command if it contains no slash.
packages() {
  local pair sign need=() known=() as_root=()
  for pair in "$@"; do
    sign=${pair#*:}
    case $sign in
      */*) [ -e "$sign" ] ;;
      *) command -v "$sign" >/dev/null ;;
    esac || need+=("${pair%%:*}")
  done
  [ ${#need[@]} -gt 0 ] || return 0
  echo "installing ${need[*]}"
  [ "$(id -u)" = 0 ] || as_root=(sudo)
  "${as_root[@]}" apt-get update -q || return 1
  for pair in "${need[@]}"; do
    if apt-cache show "$pair" >/dev/null 2>&1; then known+=("$pair"); else echo "no package is called $pair here"; fi
  done
  "${as_root[@]}" apt-get install -qy --no-install-recommends "${known[@]}"
}
