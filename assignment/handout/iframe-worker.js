// Browsers refuse a Worker, in which the search runs, to pages from a disk: there an iframe takes its place.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      const frame = document.createElement("iframe")
      frame.hidden = true
      document.documentElement.append(frame)
      this.inside = frame.contentWindow
      this.inside.importScripts = (...urls) => Promise.all(urls.map(one => this.load(one)))
      this.inside.postMessage = data => this.dispatchEvent(new MessageEvent("message", { data }))
      this.isReady = this.load(url)
    }

    load(url) {
      const script = this.inside.document.createElement("script")
      script.src = url
      const isLoaded = new Promise(done => (script.onload = done))
      this.inside.document.head.append(script)
      return isLoaded
    }

    postMessage(data) {
      this.isReady.then(() => this.inside.dispatchEvent(new MessageEvent("message", { data })))
    }
  }
}
