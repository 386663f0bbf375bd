"""The one style sheet of the static views: JupyterLab's own colours where it has one, ours where it has none."""

__all__ = ["STYLE"]

STYLE = """<style>
.wflab{--w-ok:#1a7f37;--w-bad:#b42318;--w-go:#0b5cad;--w-wait:#8a5a00;--w-dim:#5b6470;
font-family:var(--jp-ui-font-family,system-ui,sans-serif);font-size:12px;color:var(--jp-ui-font-color1,#1f2328)}
[data-jp-theme-light="false"] .wflab{--w-ok:#56d364;--w-bad:#ff8b80;--w-go:#7ab8ff;--w-wait:#e3b341;--w-dim:#a5adb8}
.wflab code{font-family:var(--jp-code-font-family,ui-monospace,monospace);font-size:11px;background:none !important;
padding:0 !important;color:inherit}
.wflab .wflab-head{display:flex;flex-wrap:wrap;gap:4px 14px;align-items:baseline;margin:2px 0 6px}
.wflab .wflab-head b{font-size:13px}
.wflab i{font-style:normal;color:var(--w-dim)}
.wflab table{border-collapse:collapse;margin:0;font-size:12px}
.wflab th,.wflab td{text-align:left !important}
.wflab th{font-weight:600;color:var(--w-dim);border-bottom:1px solid var(--jp-border-color1,#c9ced6);
padding:3px 10px 3px 0}
.wflab td{padding:3px 10px 3px 0;border-bottom:1px solid var(--jp-border-color2,#e3e6ea);
background:none;vertical-align:middle;white-space:nowrap}
.wflab .wflab-lanes{width:100%;max-width:960px;table-layout:auto}
.wflab .wflab-name{font-family:var(--jp-code-font-family,ui-monospace,monospace);max-width:220px;overflow:hidden;
text-overflow:ellipsis}
.wflab .wflab-track{width:100%}
.wflab .wflab-track>div{position:relative;height:18px}
.wflab-span{position:absolute;top:2px;height:14px;box-sizing:border-box;border:1.5px solid var(--w-dim);
border-radius:3px;font-size:10px;line-height:11px;padding-left:3px;overflow:hidden;background:transparent;
text-align:left}
.wflab-span.wflab-completed{border-color:var(--w-ok);background:color-mix(in srgb,var(--w-ok) 18%,transparent)}
.wflab-span.wflab-failed,.wflab-span.wflab-retrying{border-color:var(--w-bad);
background:repeating-linear-gradient(45deg,transparent 0 4px,color-mix(in srgb,var(--w-bad) 25%,transparent) 4px 7px)}
.wflab-span.wflab-running{border-color:var(--w-go);background:color-mix(in srgb,var(--w-go) 18%,transparent)}
.wflab-span.wflab-cancelled{border-style:dashed}
.wflab-span.wflab-backoff{border:0;border-top:1.5px dotted var(--w-wait);top:8px;height:6px;border-radius:0}
.wflab-span.wflab-waiting,.wflab-span.wflab-woken{border-color:var(--w-wait);border-style:dotted}
.wflab-span.wflab-held{border:0;border-top:2px solid var(--w-go);top:8px;height:4px;border-radius:0}
.wflab-mark{position:absolute;top:0;margin-left:-5px;font-size:12px;line-height:18px;color:var(--w-go);cursor:default}
.wflab-badge{white-space:nowrap;color:var(--w-dim)}
.wflab-badge.wflab-completed{color:var(--w-ok)}
.wflab-badge.wflab-failed,.wflab-badge.wflab-refused,.wflab-badge.wflab-retrying{color:var(--w-bad)}
.wflab-badge.wflab-running,.wflab-badge.wflab-held{color:var(--w-go)}
.wflab-badge.wflab-waiting,.wflab-badge.wflab-retained{color:var(--w-wait)}
.wflab .wflab-error{color:var(--w-bad);white-space:normal}
.wflab p{margin:6px 0 2px}
</style>"""
