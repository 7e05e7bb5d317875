// Lets the search of the built site work from files (file://), where browsers start no Worker: the same script runs in
// a hidden frame instead. Over HTTP this file does nothing.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.onmessage = this.onerror = this.onmessageerror = null;
      this.waiting = [];
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      this.frame.addEventListener("load", () => {
        const inner = this.frame.contentWindow;
        inner.postMessage = (data) => this.tell(data);
        inner.importScripts = () => {};
        const script = inner.document.createElement("script");
        script.src = new URL(url, document.baseURI).href;
        script.addEventListener("load", () => {
          this.ready = inner;
          this.waiting.splice(0).forEach((data) => this.postMessage(data));
        });
        script.addEventListener("error", (event) => this.onerror && this.onerror(event));
        inner.document.head.append(script);
      }, { once: true });
      this.frame.srcdoc = "<!doctype html><title>search</title>";
      document.documentElement.append(this.frame);
    }
    // Messages arrive in a task of their own, as from a Worker: an answer within the call would never end.
    tell(data) {
      setTimeout(() => {
        const event = new MessageEvent("message", { data });
        if (this.onmessage) this.onmessage(event);
        this.dispatchEvent(event);
      });
    }
    postMessage(data) {
      if (!this.ready) this.waiting.push(data);
      else setTimeout(() => this.ready.dispatchEvent(new this.ready.MessageEvent("message", { data })));
    }
    terminate() {
      this.frame.remove();
    }
  };
}
