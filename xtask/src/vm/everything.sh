# What the tests of the backends, and IPVS above all, need of the kernel and of the tools. Ends at the first thing that lacks.
set -e
echo "kernel $(uname -r)"

modprobe -a ip_vs ip_vs_rr ip_vs_wrr ip_vs_lc ip_vs_wlc ip_vs_lblc ip_vs_lblcr ip_vs_dh ip_vs_sh ip_vs_sed ip_vs_nq \
    ip_vs_fo ip_vs_ovf ip_vs_mh
modprobe -a dummy veth nf_conntrack sctp nf_tables nft_compat xt_set xt_ipvs xt_mark xt_comment ip_set_hash_ip \
    ip_set_hash_ipport ip_set_hash_ipportip ip_set_hash_ipportnet ip_set_hash_net ip_set_bitmap_port

for scheduler in rr wrr lc wlc lblc lblcr dh sh sed nq fo ovf mh; do
    ipvsadm -A -t 10.96.0.10:80 -s "$scheduler"
    ipvsadm -D -t 10.96.0.10:80
done
ipvsadm -A -t 10.96.0.10:80 -s rr -p 10800
ipvsadm -a -t 10.96.0.10:80 -r 10.244.1.2:8080 -m -w 1
ipvsadm -A --sctp-service 10.96.0.10:90 -s rr
ipvsadm -A -t "[fd00:10:96::1]:80" -s rr
ipvsadm -a -t "[fd00:10:96::1]:80" -r "[fd00:10:244::2]:8080" -m
ipvsadm -S -n
ipvsadm -S -n | grep -q -- "-a -t 10.96.0.10:80 -r 10.244.1.2:8080 -m -w 1"
grep "0A60000A:0050 rr" /proc/net/ip_vs

ip link add kube-ipvs0 type dummy
ip address add 10.96.0.10/32 dev kube-ipvs0
ip -o address show dev kube-ipvs0

ipset create KUBE-CLUSTER-IP hash:ip,port
ipset restore <<END
create KUBE-LOOP-BACK hash:ip,port,ip
create KUBE-LOAD-BALANCER-SOURCE-CIDR hash:ip,port,net
create KUBE-NODE-PORT-TCP bitmap:port range 0-65535
create KUBE-NODE-PORT-LOCAL-SCTP-HASH hash:ip,port
create KUBE-IPVS-IPS hash:ip
create KUBE-NET hash:net
create KUBE-6-CLUSTER-IP hash:ip,port family inet6
add KUBE-CLUSTER-IP 10.96.0.10,tcp:80
add KUBE-NODE-PORT-LOCAL-SCTP-HASH 10.0.0.1,sctp:30090
add KUBE-NODE-PORT-TCP 30080
END
ipset save

for variant in legacy nft; do
    for tables in iptables ip6tables; do
        "$tables-$variant-restore" --noflush <<END
*nat
:KUBE-TEST - [0:0]
-A KUBE-TEST -m comment --comment "a comment" -m mark --mark 0x4000/0x4000 -j MASQUERADE
-A KUBE-TEST -m statistic --mode random --probability 0.5 -j RETURN
COMMIT
*filter
:KUBE-TEST - [0:0]
-A KUBE-TEST -m ipvs --ipvs -m conntrack --ctstate INVALID -j DROP
-A KUBE-TEST -m recent --name X --rcheck --seconds 10 --reap -j REJECT
COMMIT
END
        "$tables-$variant-save" | grep -q KUBE-TEST
    done
    "iptables-$variant" -A KUBE-TEST -m set --match-set KUBE-CLUSTER-IP dst,dst -j ACCEPT
    "iptables-$variant" -A KUBE-TEST -p sctp -m sctp --dport 90 -j ACCEPT
done
nft list ruleset >/dev/null
conntrack -L >/dev/null

ip netns add other
ip link add name near type veth peer name far netns other
ip -n other link set lo up
grep -q "^SCTP " /proc/net/protocols
echo "everything is there"
