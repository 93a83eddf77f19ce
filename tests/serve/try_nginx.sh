#!/bin/sh
# Runs `nmt serve` behind nginx, and behind caddy if it is installed, as configs/serving says, on other ports and with a
# certificate of its own, and checks what clients see. Not part of the tests: it needs nginx, curl and openssl.
#   tests/serve/try_nginx.sh runs/demo 我昨天买了一本书。 en
set -eu
model=$1 text=$2 target=$3 name=translate.example.org
configs=$(dirname "$0")/../../configs/serving
work=$(mktemp -d)
trap 'kill $(cat "$work"/*.pid) || true; rm -rf "$work"' EXIT

get() {  # as a client elsewhere: the certificate is checked, and the name leads to this machine
    curl -s --max-time 60 --cacert "$work/nmt.crt" --resolve "$name:$port:127.0.0.1" "$@"
}
check() {  # the expected status, and words for curl
    expected=$1; shift
    status=$(get -o "$work/answer" -w '%{http_code}' "$@")
    echo "$port: $status for $*"
    [ "$status" = "$expected" ] || { echo "not $expected: $(cat "$work/answer")"; exit 1; }
}
# 1. A certificate, the server, and the proxies.
openssl req -x509 -newkey rsa:2048 -nodes -days 1 -subj "/CN=$name" -addext "subjectAltName=DNS:$name" \
    -keyout "$work/nmt.key" -out "$work/nmt.crt" 2> /dev/null
python -m nmt serve -m "$model" --port 5955 --allow-host "$name" 2> "$work/nmt.log" & echo $! > "$work/nmt.pid"
curl -sf --retry 60 --retry-delay 1 --retry-connrefused http://127.0.0.1:5955/ready
sed "s|:5000|:5955|; s|listen 80|listen 8081|; s|listen 443|listen 8443|; s|/etc/nginx|$work|; s|/var/log/nginx|$work|
    " \
    "$configs/nginx.conf" > "$work/site.conf"
echo "pid $work/nginx.pid; events {} http { include $work/site.conf; }" > "$work/nginx.conf"
nginx -e "$work/error.log" -c "$work/nginx.conf"
ports=8443
if command -v caddy; then
    { printf '{\nadmin off\nauto_https disable_redirects\n}\n'; cat "$configs/Caddyfile"; } | sed "s|:5000|:5955|
        s|^$name|https://$name:8444|; s|request_body|tls $work/nmt.crt $work/nmt.key\n&|" > "$work/Caddyfile"
    caddy run --config "$work/Caddyfile" 2> "$work/caddy.log" & echo $! > "$work/caddy.pid"
    ports="8443 8444"
fi; sleep 2
# 2. What is answered, and what is refused.
for port in $ports; do
    url=https://$name:$port
    for path in / /health /docs /static/serve.js; do check 200 "$url$path"; done
    check 200 "$url/translate" -d source=auto -d "target=$target" --data-urlencode "q=$text"
    check 200 "$url/v1/translate" --json "{\"q\": \"$text\"}" -H "Origin: $url"
    check 403 "$url/v1/translate" --json "{\"q\": \"$text\"}" -H "Origin: https://evil.example"
    [ $port = 8444 ] || check 421 "$url/health" -H 'Host: evil.example'  # caddy answers with an empty page
    for path in /metrics //metrics /metrics/ /%6detrics /a/../metrics /metrics?a /ready; do
        check 404 --path-as-is "$url$path"
    done
    head -c 11000000 /dev/zero | check 413 "$url/translate_file" -F file=@-
    # 3. A document; a stream, whose first event comes before the last one.
    echo "$text" > "$work/text.txt"
    file=$(get "$url/translate_file" -F "file=@$work/text.txt" -F source=auto -F "target=$target" | cut -d '"' -f 4)
    check 200 "$file" && cat "$work/answer"
    get -N "$url/v1/translate" --json "{\"q\": \"$text\", \"stream\": true}" |
        while read -r line; do date "+%s%N $line"; done | awk '/: partial/ && !a {a = $1} /: done/ {b = $1}
            END {print "ms of a stream:", (b - a) / 1e6; exit !(a && b > a + 1e6)}'
done
# 4. The redirect; of many requests at once, the rest gets 429; no log has the text.
port=8081 && check 301 "http://$name:$port/" && port=8443
seq 200 | xargs -P 50 -I{} curl -sk -o /dev/null -w '%{http_code}\n' https://127.0.0.1:8443/health | sort | uniq -c
if grep -e "$text" "$work"/*.log; then exit 1; fi
