// The connection: one stream of server-sent events, opened again when it ends, and given back while nobody looks.

const AGAIN_MS = 5_000;
const HIDDEN_MS = 60_000;

export class Stream {
  #source = null;
  #timer = 0;
  #pool = "";
  #take;
  #tell;

  /** `take(name, data)` gets snapshots and news, `tell(state, text)` how the connection is: live, lost. */
  constructor(take, tell) {
    this.#take = take;
    this.#tell = tell;
    document.addEventListener("visibilitychange", () => this.#seen());
  }

  /** Follow a pool, "" for none in full. */
  open(pool) {
    this.#pool = pool;
    this.#connect();
  }

  #connect() {
    clearTimeout(this.#timer);
    this.#source?.close();
    const source = new EventSource(`v1/stream?${new URLSearchParams({ pool: this.#pool })}`);
    this.#source = source;
    for (const name of ["snapshot", "news"]) {
      source.addEventListener(name, (event) => {
        if (source !== this.#source) return;
        this.#take(name, JSON.parse(event.data));
        if (name === "snapshot") this.#tell("live", "live");
      });
    }
    source.addEventListener("error", () => {
      if (source !== this.#source) return;
      if (source.readyState !== EventSource.CLOSED) return this.#tell("lost", "connection lost, trying again");
      this.#tell("lost", "no stream: too many pages are open, or the replica stops; trying again");
      this.#timer = setTimeout(() => this.#connect(), AGAIN_MS);
    });
  }

  #seen() {
    clearTimeout(this.#timer);
    if (!document.hidden) {
      if (this.#source?.readyState !== EventSource.OPEN) this.#connect();
      return;
    }
    this.#timer = setTimeout(() => {
      this.#source?.close();
      this.#tell("lost", "paused while this page is hidden");
    }, HIDDEN_MS);
  }
}
