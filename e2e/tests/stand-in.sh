#!/bin/sh
# A stand-in for the agent, for testing the lab itself: hand-written rules in the layout with a chain per service for the
# services of the experiments, loaded again when a manifest changes. STAND_IN_FAULT makes it lie: no-masquerade leaves the
# source address of node port traffic alone, die ends it at once, idle loads nothing.
set -eu
while [ $# -gt 0 ]; do
    case $1 in
    --manifests) manifests=$2; shift ;;
    --node) node=$2; shift ;;
    esac
    shift
done
fault=${STAND_IN_FAULT:-}
mark='mark set mark or 0x4000'
if [ "$fault" = no-masquerade ]; then mark='continue'; fi
if [ "$fault" = die ]; then echo "stand-in: told to die" >&2; exit 7; fi

# chains FAMILY NAME CLUSTER-IP NODE-PORT ENDPOINT-NAME=ADDRESS...: what one service needs
service() {
    family=$1 name=$2 address=$3 port=$4
    shift 4
    count=$# index=0 map='' rules=''
    for endpoint in "$@"; do
        ip=${endpoint#*=} chain=endpoint-${endpoint%%=*}
        to=$ip:8080
        if [ "$family" = ip6 ]; then to="[$ip]:8080"; fi
        rules="$rules
        chain $chain { $family saddr $ip jump mark-for-masquerade; meta l4proto tcp dnat to $to; }"
        map="$map${map:+, }$index : goto $chain"
        index=$((index + 1))
    done
    local=''
    if [ "$policy" = Local ]; then
        if [ "$node" = worker ]; then local="goto service-$name"; fi
        external="$local"
    else
        external="$mark; goto service-$name"
    fi
    echo "$rules
        chain service-$name { numgen random mod $count vmap { $map }; }
        chain external-$name { $external; }"
    eval "ips_$family=\"\${ips_$family}\${ips_$family:+, }$address . tcp . 80 : goto service-$name\""
    eval "ports_$family=\"\${ports_$family}\${ports_$family:+, }tcp . $port : goto external-$name\""
    if [ "$policy" = Local ] && [ -z "$local" ]; then
        eval "drops_$family=\"tcp . $port : drop\""
    fi
}

table() {
    family=$1 type=$2 chains=$3
    eval "ips=\$ips_$family ports=\$ports_$family drops=\$drops_$family"
    cat <<RULES
add table $family kube-proxy
delete table $family kube-proxy
table $family kube-proxy {
    map service-ips { type $type . inet_proto . inet_service : verdict; ${ips:+elements = { $ips \};} }
    map service-nodeports { type inet_proto . inet_service : verdict; ${ports:+elements = { $ports \};} }
    map no-endpoint-nodeports { type inet_proto . inet_service : verdict; ${drops:+elements = { $drops \};} }
    chain mark-for-masquerade { $mark; }
    $chains
    chain services {
        $family daddr . meta l4proto . th dport vmap @service-ips
        fib daddr type local meta l4proto . th dport vmap @service-nodeports
    }
    chain prerouting { type nat hook prerouting priority -100; jump services; }
    chain output { type nat hook output priority -100; jump services; }
    chain postrouting {
        type nat hook postrouting priority 100
        mark and 0x4000 != 0 mark set mark xor 0x4000 masquerade fully-random
    }
    chain input { type filter hook input priority 0; meta l4proto . th dport vmap @no-endpoint-nodeports; }
}
RULES
}

rules() {
    ips_ip='' ports_ip='' drops_ip='' ips_ip6='' ports_ip6='' drops_ip6=''
    policy=$(sed -n 's/^ *externalTrafficPolicy: //p' "$manifests"/*.yaml)
    four=$(mktemp -p /run) six=$(mktemp -p /run)
    if [ -e "$manifests/source-ip.yaml" ]; then
        service ip source/ip 10.96.123.219 30080 source/ip=10.244.1.3 >"$four"
    elif [ -e "$manifests/dual-stack.yaml" ]; then
        service ip dual/stack 10.96.123.220 30082 dual/stack=10.244.1.3 >"$four"
        service ip6 dual/stack fd00:10:96::7bdc 30082 dual/stack=fd00:10:244:1::3 >"$six"
    else
        echo=service-dataplane/echo-server/tcp/http
        service ip AKD4XF6G-$echo 10.96.66.43 30081 \
            Q7LEI3H3-${echo}__10.244.1.2/8080=10.244.1.2 JHFC3PET-${echo}__10.244.2.2/8080=10.244.2.2 >"$four"
    fi
    table ip ipv4_addr "$(cat "$four")"
    table ip6 ipv6_addr "$(cat "$six")"
    rm -f "$four" "$six"
}

loaded=''
while :; do
    now=$(cat "$manifests"/*.yaml | cksum)
    if [ "$now" != "$loaded" ] && [ "$fault" != idle ]; then
        rules | nft -f - && echo "stand-in: rules loaded on $node" >&2
        loaded=$now
    fi
    sleep 0.05
done
