#!/bin/sh
# Make or renew a server's certificate for TLS, signed by the deployment's own authority: sh certificate.sh FOLDER NAME HOST...
# FOLDER/ca.pem and ca.key are the authority, made if they are missing; ca.pem is for every client, ca.key for nobody.
# FOLDER/NAME.pem has the server's private key and its certificate, valid for 825 days and for the HOSTs alone.
set -eu
umask 077
folder=$1 name=$2
shift 2
mkdir -p "$folder"
work=$(mktemp -d "$folder/.certificate.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
# P-256 and PKCS 8, which Kafka, Redis and Python read.
new_key() { openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out "$1" 2>/dev/null; }

if [ ! -e "$folder/ca.key" ]; then
  new_key "$work/ca.key"
  printf '[req]\ndistinguished_name=name\nx509_extensions=uses\n[name]\n[uses]\nbasicConstraints=critical,CA:TRUE,pathlen:0
keyUsage=critical,keyCertSign,cRLSign\nsubjectKeyIdentifier=hash\n' >"$work/ca.conf"
  # A number in the name, so that two authorities are told apart.
  openssl req -new -x509 -config "$work/ca.conf" -key "$work/ca.key" -days 3650 \
    -subj "/CN=streamtopic authority $(od -An -N4 -tx1 /dev/urandom | tr -d ' \n')" -out "$work/ca.pem"
  mv "$work/ca.pem" "$folder/ca.pem"
  mv "$work/ca.key" "$folder/ca.key"
fi

places=
for host in "$@"; do
  case $host in
    *:* | *[0-9].[0-9]*.[0-9]*.[0-9]*) kind=IP ;;
    *) kind=DNS ;;
  esac
  places="$places,$kind:$host"
done
printf 'basicConstraints=critical,CA:FALSE\nextendedKeyUsage=serverAuth,clientAuth\nsubjectKeyIdentifier=hash
authorityKeyIdentifier=keyid\n%s\n' "${places:+subjectAltName=${places#,}}" >"$work/uses"
new_key "$work/key"
openssl req -new -key "$work/key" -subj "/CN=$name" -out "$work/request"
openssl x509 -req -in "$work/request" -CA "$folder/ca.pem" -CAkey "$folder/ca.key" -CAserial "$work/serial" -CAcreateserial \
  -sha256 -days 825 -extfile "$work/uses" -out "$work/certificate" 2>/dev/null
cat "$work/key" "$work/certificate" >"$work/server"
mv "$work/server" "$folder/$name.pem"
