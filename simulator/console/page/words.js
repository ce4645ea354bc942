// Numbers and times as people read them.

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

export const count = (number) => whole.format(number);

export function rate(perSecond) {
  if (perSecond === 0) return "0";
  if (perSecond >= 10) return whole.format(perSecond);
  return perSecond < 0.1 ? "<0.1" : perSecond.toFixed(1);
}

export function age(seconds) {
  if (seconds === null || seconds === undefined) return "";
  for (const [unit, size, smaller, part] of [["d", 86400, "h", 3600], ["h", 3600, "min", 60], ["min", 60, "s", 1]]) {
    if (seconds >= size) {
      const rest = Math.floor((seconds % size) / part);
      return `${Math.floor(seconds / size)} ${unit}${rest ? ` ${rest} ${smaller}` : ""}`;
    }
  }
  return `${Math.floor(seconds)} s`;
}

export function bytes(size) {
  for (const [unit, factor] of [["GB", 1e9], ["MB", 1e6], ["kB", 1e3]]) {
    if (size >= factor) return `${(size / factor).toPrecision(3)} ${unit}`;
  }
  return `${size} bytes`;
}

export const messages = (number) => `${count(number)} message${number === 1 ? "" : "s"}`;
