# syntax=docker/dockerfile:1
# docker build -t weir . && docker run -p 127.0.0.1:8080:8080 -v weir-models:/var/cache/weir weir --insecure
FROM debian:bookworm-slim AS build
RUN apt-get update && apt-get install -y --no-install-recommends build-essential meson ninja-build pkg-config python3 libjansson-dev libyaml-dev \
      libssl-dev libevent-dev libcurl4-openssl-dev libpcre2-dev libutf8proc-dev libxxhash-dev zlib1g-dev libedit-dev libsqlite3-dev \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY . .
RUN meson setup /build --prefix=/usr -Dtests=false -Dbench=false && ninja -C /build && DESTDIR=/out meson install -C /build --no-rebuild --strip

FROM debian:bookworm-slim
# ca-certificates: models come over TLS.
RUN apt-get update && apt-get install -y --no-install-recommends ca-certificates libjansson4 libyaml-0-2 libssl3 libevent-core-2.1-7 libevent-extra-2.1-7 \
      libevent-pthreads-2.1-7 libcurl4 libpcre2-8-0 libutf8proc2 libxxhash0 zlib1g libedit2 libsqlite3-0 \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --system --uid 10001 --home-dir /var/lib/weir --create-home weir && install -d -o weir -g weir /var/cache/weir
COPY --from=build /out/ /
ENV XDG_CACHE_HOME=/var/cache XDG_DATA_HOME=/var/lib XDG_CONFIG_HOME=/etc
USER 10001
WORKDIR /var/lib/weir
VOLUME /var/cache/weir
EXPOSE 8080
# Alive is enough: while the first model is fetched it is not ready, and must not be restarted for that.
HEALTHCHECK --interval=10s --timeout=3s --start-period=5s CMD ["weir", "health"]
STOPSIGNAL SIGTERM
# Beyond loopback weir wants keys or --insecure: the one who runs the image says which (the top of this file, docs/install.md).
ENTRYPOINT ["weir", "up", "--host", "0.0.0.0"]
