# shellcheck shell=bash
# Java, the jars and the class archive: what is fetched or made once per user.
#
# Layout of CACHE:  kafka-<version>/lib/*.jar          all or nothing (temporary directory, then one rename)
#                   kafka-<version>/bootstrap.checkpoint   what formatting writes: the same for every cluster of that version
#                   kafka-<version>/cds/<key>.jsa      AppCDS archive per JDK, about halves the start
#                   ports/<port>                       locks: two starts at once choose different ports

JAVA='' LIB='' CDS_ARCHIVE='' FETCH_TMP='' FETCH_PID=''

find_java() {
    local home major version=''
    if [[ -n ${PENSTOCK_JAVA:-} ]]; then
        JAVA=$PENSTOCK_JAVA
    elif [[ -n ${JAVA_HOME:-} && -x $JAVA_HOME/bin/java ]]; then
        JAVA=$JAVA_HOME/bin/java
    else
        JAVA=java
    fi
    JAVA=$(command -v "$JAVA") || die "$EX_MISSING" "Java 17 or newer is needed and ${PENSTOCK_JAVA:-java} was not found." \
        "Install it (Debian: apt-get install openjdk-17-jre-headless) or set PENSTOCK_JAVA=/path/to/bin/java"
    [[ $JAVA == /* ]] || JAVA=$PWD/$JAVA # brokers run in another directory
    home=$(readlink -f "$JAVA")
    home=${home%/bin/java}
    if [[ -r $home/release ]]; then
        version=$(sed -n 's/^JAVA_VERSION="\{0,1\}\([0-9][0-9._]*\).*/\1/p' "$home/release")
    fi
    if [[ -z $version ]]; then
        version=$("$JAVA" -version 2>&1 | sed -n 's/.* version "\([0-9][0-9._]*\).*/\1/p')
    fi
    major=${version%%[._]*}
    [[ $major =~ ^[0-9]+$ ]] || die "$EX_MISSING" "$JAVA does not say its version: is it a Java 17 or newer? Set PENSTOCK_JAVA to one"
    ((major >= 17)) || die "$EX_MISSING" "$JAVA is Java $version; Kafka $S_VERSION needs 17 or newer." \
        "Install one (Debian: apt-get install openjdk-17-jre-headless) or set PENSTOCK_JAVA=/path/to/bin/java"
}

class_path() { # -> REPLY; the same text on every run, the class archive depends on it
    local jar first='' rest=''
    for jar in "$LIB"/*.jar; do
        case ${jar##*/} in
            kafka_2.13-* | kafka-clients-* | kafka-server-* | kafka-metadata-* | kafka-raft-* | scala-library-*) first+=$jar: ;;
            *) rest+=$jar: ;;
        esac
    done
    REPLY=$first${rest%:}
}

fetch_jars() { # makes LIB usable, over the network if need be
    [[ $CACHE != *:* ]] || die "$EX_USAGE" "$CACHE holds a colon, which Java's class path cannot: set XDG_CACHE_HOME to another place"
    LIB=$CACHE/kafka-$S_VERSION/lib
    [[ -f $LIB/kafka_2.13-$S_VERSION.jar ]] && return 0
    mkdir -p "$CACHE" || die "$EX_FAILED" "cannot make $CACHE (set XDG_CACHE_HOME to a place you may write)"
    lock_file 7 "$CACHE/kafka-$S_VERSION.lock" "fetches Kafka $S_VERSION"
    if [[ ! -f $LIB/kafka_2.13-$S_VERSION.jar ]]; then
        command -v mvn >/dev/null || die "$EX_MISSING" "Kafka $S_VERSION is not in $CACHE yet and Maven, which fetches it, was not found." \
            "Install it (Debian: apt-get install maven)"
        run_maven
    fi
    exec 7>&-
}

run_maven() {
    local pom=$HERE/pom-$S_VERSION.xml log files=-1 seen shown=0
    [[ -f $pom ]] || pom=$HERE/pom.xml
    rm -rf "$CACHE/kafka-$S_VERSION".tmp.* # left by a fetch that was killed; the lock is ours
    FETCH_TMP=$(mktemp -d "$CACHE/kafka-$S_VERSION.tmp.XXXXXX") || die "$EX_FAILED" "cannot make a directory in $CACHE"
    log=$FETCH_TMP/maven.log
    : >"$log" # the watch below may be quicker than the shell that starts Maven
    # A copy of the pom, so that Maven never writes beside ours (the sources may be read-only).
    cp "$pom" "$FETCH_TMP/pom.xml" || die "$EX_FAILED" "cannot copy $pom"
    say "fetching Apache Kafka $S_VERSION by Maven (about 55 MiB, once per user)"
    mvn -B -f "$FETCH_TMP/pom.xml" dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$FETCH_TMP/lib" \
        >"$log" 2>&1 </dev/null 6>&- 7>&- 8>&- &
    FETCH_PID=$!
    while kill -0 "$FETCH_PID" 2>/dev/null; do
        seen=$(grep -c '^.*Downloaded from' "$log")
        if [[ -t 2 && $seen != "$files" ]]; then
            printf '\rkafka: %s files' "$seen" >&2
            files=$seen
        elif [[ ! -t 2 ]] && ((SECONDS - shown >= 5)); then
            say "$seen files fetched"
            shown=$SECONDS
        fi
        sleep 0.3
    done
    [[ -t 2 ]] && printf '\r\033[K' >&2
    wait "$FETCH_PID" || fetch_failed "$log"
    FETCH_PID=''
    [[ -f $FETCH_TMP/lib/kafka_2.13-$S_VERSION.jar ]] || fetch_failed "$log"
    (cd "$FETCH_TMP/lib" && sha256sum --quiet -c "$HERE/jars-$S_VERSION.sha256") >&2 ||
        die "$EX_FAILED" "what Maven fetched is not what deploy/kafka/jars-$S_VERSION.sha256 pins; nothing was kept." \
            "If your mirror is in order, remove the named files from ~/.m2/repository and try again"
    rm -rf "$FETCH_TMP/pom.xml" "$log" "$CACHE/kafka-$S_VERSION"
    mv "$FETCH_TMP" "$CACHE/kafka-$S_VERSION" || die "$EX_FAILED" "cannot rename $FETCH_TMP"
    FETCH_TMP=''
}

fetch_failed() { # LOG
    FETCH_PID=''
    sed -n 's/^\[ERROR\] /    /p' "$1" | sed '/^ *$/d' | head -n 4 | cut -c1-400 >&2
    if grep -qiE 'unknown host|name or service|connection refused|timed out|unreachable|could not transfer|no route|PKIX|offline' "$1"; then
        die "$EX_MISSING" "Maven could not reach its repository. Kafka is fetched once: connect this computer, or name your" \
            "proxy or mirror in ~/.m2/settings.xml, and try again"
    fi
    die "$EX_FAILED" "Maven failed (the lines above are its own)"
}

fetch_cleanup() { # from the exit trap
    if [[ -n $FETCH_PID ]]; then
        kill "$FETCH_PID" 2>/dev/null
        wait "$FETCH_PID" 2>/dev/null
    fi
    [[ -n $FETCH_TMP ]] && rm -rf "$FETCH_TMP"
}

# --- the class archive ----------------------------------------------------------------------------------------------------
# The first broker of a user and JDK writes it when it is stopped (3 to 4 s more, once). The JVM checks it (-XX:+VerifySharedSpaces)
# and runs without it when it does not fit; start removes one under which a broker died.

cds_path() { # -> REPLY, the archive's path for this Java and these jars
    local real modules key
    real=$(readlink -f "$JAVA")
    modules=${real%/bin/java}/lib/modules
    class_path
    key=$(printf '%s %s %s' "$real" "$(stat -Lc '%s %Y' "$real" "$modules" 2>/dev/null)" "$REPLY" | cksum)
    REPLY=$CACHE/kafka-$S_VERSION/cds/${key%% *}.jsa
}

cds_options() { # NODE|- -> CDS_OPTIONS: use the archive, or have this node write it
    CDS_OPTIONS=() CDS_ARCHIVE=''
    local claim
    [[ ${PENSTOCK_KAFKA_CDS:-1} == 0 ]] && return
    cds_path
    if [[ -s $REPLY ]]; then
        CDS_ARCHIVE=$REPLY
        CDS_OPTIONS=(-XX:SharedArchiveFile="$REPLY" -Xshare:auto -XX:+VerifySharedSpaces)
        return
    fi
    [[ $1 == - ]] && return
    claim=$REPLY.claim
    mkdir -p "${REPLY%/*}" 2>/dev/null || return
    find "${REPLY%/*}" -name '*.claim' -mmin +60 -delete 2>/dev/null # of one that was killed before it could write
    if [[ ! -e $REPLY.failed ]] && (set -C && echo "$DIR" >"$claim") 2>/dev/null; then
        CDS_OPTIONS=(-XX:ArchiveClassesAtExit="$REPLY.by-$BASHPID")
        printf '%s\n' "$REPLY" "$REPLY.by-$BASHPID" >"$DIR/run/node-$1.cds"
    fi
}

cds_adopt() { # NODE yes|no: after that node ended, "yes" if by SIGTERM
    local final tmp
    [[ -f $DIR/run/node-$1.cds ]] || return 0
    { read -r final && read -r tmp; } <"$DIR/run/node-$1.cds"
    if [[ $2 == yes && -s $tmp ]]; then
        mv -f "$tmp" "$final"
    elif [[ $2 == yes && -d ${final%/*} ]]; then
        echo "this Java wrote no class archive" >"$final.failed" # do not make every stop slow
    fi
    rm -f "$tmp" "$final.claim" "$DIR/run/node-$1.cds"
} 2>/dev/null
