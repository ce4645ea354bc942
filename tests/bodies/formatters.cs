// What System.Messaging of Mono makes of random objects, and what it reads. tests/bodies/test_mono.py runs it.
//
//     mono formatters.exe write SEED COUNT    a line for each message: formatter, class, what it says as JSON, body
//     mono formatters.exe read                the same of lines that come in: class, body; from XmlMessageFormatter
//
// The JSON is that of mqproto.bodies.to_json, made here from the objects, so that both sides say the same in two ways.
using System;
using System.Collections;
using System.Collections.Generic;
using System.Globalization;
using System.IO;
using System.Linq;
using System.Messaging;
using System.Text;

public enum Color { Red, Green = 5 }

[Serializable]
public class Line
{
    public string Sku;
    public short Count;
    public decimal Price;
}

[Serializable]
public class Order
{
    public int Id;
    public string Customer;
    public DateTime At;
    public Guid Key;
    public byte[] Data;
    public Line[] Lines;
    public bool? Paid;
    public double Weight;
    public Color Color;
    public Line First;
    public ulong Total;
    public char Mark;
}

[Serializable]
public class Node
{
    public string Name;
    public Node Parent;
    public object Any;
    public int[,] Grid;
    public int[][] Jagged;
    public TimeSpan[] Spans;
    public char[] Chars;
    public Dictionary<string, int> Counts;
}

public static class Formatters
{
    static readonly CultureInfo Plain = CultureInfo.InvariantCulture;
    static readonly Type[] Types = {
        typeof(string), typeof(bool), typeof(sbyte), typeof(byte), typeof(short), typeof(ushort), typeof(int), typeof(uint),
        typeof(long), typeof(ulong), typeof(float), typeof(double), typeof(decimal), typeof(char), typeof(DateTime),
        typeof(Guid), typeof(byte[]), typeof(int[]), typeof(long[]), typeof(string[]), typeof(double[]), typeof(Guid[]),
        typeof(DateTime[]), typeof(decimal[]), typeof(bool[]), typeof(object[]), typeof(int[][]), typeof(Line[]),
        typeof(Order), typeof(Line)
    };
    static readonly Type[] BinaryOnly = { typeof(Node), typeof(TimeSpan), typeof(int[,]), typeof(Color) };

    public static int Main(string[] args)
    {
        var stdout = new StreamWriter(Console.OpenStandardOutput(), new UTF8Encoding(false)) { NewLine = "\n" };
        if (args.Length == 3 && args[0] == "write")
            Write(int.Parse(args[1]), int.Parse(args[2]), stdout);
        else if (args.Length == 1 && args[0] == "read")
            Read(Console.In, stdout);
        else
            return 2;
        stdout.Flush();
        return 0;
    }

    static void Write(int seed, int count, TextWriter output)
    {
        var dice = new Random(seed);
        for (int i = 0; i < count; i++)
        {
            bool xml = i % 2 == 0;
            var types = xml || dice.Next(4) > 0 ? Types : BinaryOnly;
            Type type = types[dice.Next(types.Length)];
            object value = Make(type, dice);
            IMessageFormatter formatter = xml ? (IMessageFormatter)new XmlMessageFormatter(new[] { type })
                                              : new BinaryMessageFormatter();
            var message = new Message();
            formatter.Write(message, value);
            var body = new MemoryStream();
            message.BodyStream.Position = 0;
            message.BodyStream.CopyTo(body);
            string said = xml ? XmlJson(value) : Json(value, false, new List<object>());
            output.WriteLine("{0}\t{1}\t{2}\t{3}\t{4}", xml ? "xml" : "binary", Name(type), message.BodyType, said,
                Convert.ToBase64String(body.ToArray()));
        }
    }

    static void Read(TextReader input, TextWriter output)
    {
        var known = Types.ToDictionary(Name);
        string line;
        while ((line = input.ReadLine()) != null)
        {
            string[] parts = line.Split('\t');
            var message = new Message { BodyStream = new MemoryStream(Convert.FromBase64String(parts[1])) };
            try { output.WriteLine(XmlJson(new XmlMessageFormatter(new[] { known[parts[0]] }).Read(message))); }
            catch (Exception error) { output.WriteLine(Text(error.Message)); }
        }
    }

    static string Name(Type type) { return type.FullName; }

    // Random objects.

    static object Make(Type type, Random dice)
    {
        var bits = new byte[8];
        dice.NextBytes(bits);
        if (dice.Next(4) == 0) bits = BitConverter.GetBytes((long)dice.Next(-2, 3));
        if (type == typeof(string)) return MakeText(dice);
        if (type == typeof(bool)) return dice.Next(2) == 0;
        if (type == typeof(sbyte)) return (sbyte)bits[0];
        if (type == typeof(byte)) return bits[0];
        if (type == typeof(short)) return BitConverter.ToInt16(bits, 0);
        if (type == typeof(ushort)) return BitConverter.ToUInt16(bits, 0);
        if (type == typeof(int)) return BitConverter.ToInt32(bits, 0);
        if (type == typeof(uint)) return BitConverter.ToUInt32(bits, 0);
        if (type == typeof(long)) return BitConverter.ToInt64(bits, 0);
        if (type == typeof(ulong)) return BitConverter.ToUInt64(bits, 0);
        if (type == typeof(float)) return dice.Next(6) == 0 ? float.NegativeInfinity : (float)(dice.Next(-9999, 9999) / 64.0);
        if (type == typeof(double)) return dice.Next(6) == 0 ? double.NaN : dice.NextDouble() * Math.Pow(10, dice.Next(-9, 12));
        if (type == typeof(decimal))
            return new decimal(dice.Next(), dice.Next(2) * dice.Next(), dice.Next(2) * dice.Next(), dice.Next(2) == 0, (byte)dice.Next(29));
        if (type == typeof(char)) return "aZ9 \u00e4\u20ac\t<"[dice.Next(8)];
        if (type == typeof(DateTime))
            return new DateTime((long)(dice.NextDouble() * DateTime.MaxValue.Ticks / 2) + DateTime.MaxValue.Ticks / 4, (DateTimeKind)dice.Next(3));
        if (type == typeof(TimeSpan)) return new TimeSpan(BitConverter.ToInt64(bits, 0));
        if (type == typeof(Guid)) { var guid = new byte[16]; dice.NextBytes(guid); return new Guid(guid); }
        if (type == typeof(byte[])) { var data = new byte[dice.Next(40)]; dice.NextBytes(data); return data; }
        if (type == typeof(Color)) return dice.Next(2) == 0 ? Color.Red : Color.Green;
        if (type == typeof(int[,])) return new int[,] { { 1, dice.Next(), 3 }, { 4, 5, 6 } };
        if (type == typeof(object[])) return MakeMany(dice, i => dice.Next(5) == 0 ? null : Make(Types[dice.Next(16)], dice));
        if (type == typeof(Line))
            return new Line { Sku = MakeText(dice), Count = (short)dice.Next(-9, 999), Price = dice.Next(99999) / 100m };
        if (type == typeof(Order))
        {
            var lines = dice.Next(5) == 0 ? null : (Line[])Make(typeof(Line[]), dice);
            return new Order
            {
                Id = dice.Next(), Customer = dice.Next(5) == 0 ? null : MakeText(dice), At = (DateTime)Make(typeof(DateTime), dice),
                Key = (Guid)Make(typeof(Guid), dice), Data = dice.Next(5) == 0 ? null : (byte[])Make(typeof(byte[]), dice),
                Lines = lines, Paid = dice.Next(3) == 0 ? null : (bool?)(dice.Next(2) == 0), Weight = dice.Next(99) / 8.0,
                Color = (Color)Make(typeof(Color), dice), First = lines != null && lines.Length > 0 ? lines[0] : null,
                Total = (ulong)Make(typeof(ulong), dice), Mark = (char)Make(typeof(char), dice)
            };
        }
        if (type == typeof(Node))
        {
            var top = new Node { Name = MakeText(dice), Grid = (int[,])Make(typeof(int[,]), dice), Any = dice.Next(),
                                 Chars = "a\u00e4\u20ac".ToCharArray(), Spans = new[] { (TimeSpan)Make(typeof(TimeSpan), dice) } };
            top.Parent = new Node { Name = top.Name, Parent = top, Any = Make(typeof(object[]), dice),
                                    Jagged = (int[][])Make(typeof(int[][]), dice) };
            return top;
        }
        Type item = type.GetElementType();
        int length = dice.Next(5);
        var array = Array.CreateInstance(item, length);
        for (int i = 0; i < length; i++)
            array.SetValue(item == typeof(string) && dice.Next(4) == 0 ? null : Make(item, dice), i);
        return array;
    }

    static object[] MakeMany(Random dice, Func<int, object> make) { return Enumerable.Range(0, dice.Next(6)).Select(make).ToArray(); }

    static string MakeText(Random dice)
    {
        string[] words = { "order", " ", "  ", "\r\n", "\n", "\t", "<&>\"'", "]]>", "\u00e4\u00f6\u00fc", "\u20ac", "\ud83d\ude00",
                           "\u0001", "\u0019", "\ufffe", "17", "", "&#x41;", "\u0085", "\u2028" };
        return string.Concat(Enumerable.Range(0, dice.Next(5)).Select(i => words[dice.Next(words.Length)]));
    }

    // What they say.

    static string Text(string value)
    {
        if (value == null) return "null";
        var text = new StringBuilder("\"");
        foreach (char c in value)
            text.Append(c < 0x20 || c > 0x7e || c == '"' || c == '\\' ? string.Format("\\u{0:x4}", (int)c) : c.ToString());
        return text.Append('"').ToString();
    }

    static string Time(DateTime time, bool xml)
    {
        string[] zones = xml ? new[] { "", "Z", time.ToString("zzz", Plain) } : new[] { "", "Z", " local" };
        return time.ToString("yyyy-MM-dd'T'HH:mm:ss.FFFFFFF", Plain) + zones[(int)time.Kind];
    }

    static string Number(double value)
    {
        if (double.IsNaN(value)) return "{\"$double\":\"NaN\"}";
        if (double.IsInfinity(value)) return "{\"$double\":\"" + (value < 0 ? "-INF" : "INF") + "\"}";
        return value.ToString("R", Plain);
    }

    static string Json(object value, bool xml, List<object> around)
    {
        if (value == null) return "null";
        if (value is string || value is char) return Text(value.ToString());
        if (value is bool) return (bool)value ? "true" : "false";
        if (value is double) return Number((double)value);
        if (value is float) return Number(xml ? double.Parse(((float)value).ToString("R", Plain), Plain) : (float)value);
        if (value is decimal) return "{\"$decimal\":\"" + ((decimal)value).ToString(Plain) + "\"}";
        if (value is Guid) return "{\"$guid\":\"" + value + "\"}";
        if (value is DateTime) return "{\"$dateTime\":\"" + Time((DateTime)value, xml) + "\"}";
        if (value is TimeSpan) return "{\"$timeSpan\":" + ((TimeSpan)value).Ticks + "}";
        if (value is byte[]) return "{\"$base64\":\"" + Convert.ToBase64String((byte[])value) + "\"}";
        if (value is char[]) return "[" + string.Join(",", ((char[])value).Select(c => Text(c.ToString()))) + "]";
        if (value is Color) return "{\"$type\":\"Color\",\"value__\":" + (int)(Color)value + "}";
        if (value.GetType().IsPrimitive) return Convert.ToString(value, Plain);
        int levels = around.FindLastIndex(other => ReferenceEquals(other, value));
        if (levels >= 0) return "{\"$above\":" + (around.Count - levels) + "}";
        around = new List<object>(around) { value };
        var grid = value as int[,];
        if (grid != null)
            return "[" + string.Join(",", Enumerable.Range(0, grid.GetLength(0)).Select(i => "[" + string.Join(",",
                Enumerable.Range(0, grid.GetLength(1)).Select(j => Json(grid[i, j], xml, around))) + "]")) + "]";
        if (value is Array)
            return "[" + string.Join(",", ((IEnumerable)value).Cast<object>().Select(item => Json(item, xml, around))) + "]";
        var members = value.GetType().GetFields().Select(f => Text(f.Name) + ":" + Json(f.GetValue(value), xml, around));
        return "{" + string.Join(",", new[] { "\"$type\":" + Text(Name(value.GetType())) }.Concat(members)) + "}";
    }

    // In XML members are text, and nulls are left out, all but those of Nullable.
    static string XmlJson(object value)
    {
        var lines = value as Line[];
        if (lines != null)
            return "{\"$type\":\"ArrayOfLine\"" + (lines.Length > 0 ? "," + Repeated(lines) : "") + "}";
        return value is Order || value is Line ? XmlObject(value, "\"$type\":\"" + value.GetType().Name + "\",") : Json(value, true, new List<object>());
    }

    static string Repeated(Line[] lines)
    {
        string said = string.Join(",", lines.Select(line => XmlObject(line, "")));
        return "\"Line\":" + (lines.Length == 1 ? said : "[" + said + "]");
    }

    static string XmlObject(object value, string first)
    {
        var members = new List<string>();
        foreach (var field in value.GetType().GetFields())
        {
            object member = field.GetValue(value);
            string said = null;
            if (member is Line[]) said = ((Line[])member).Length == 0 ? "\"\"" : "{" + Repeated((Line[])member) + "}";
            else if (member is Line) said = XmlObject(member, "");
            else if (member is byte[]) said = Text(Convert.ToBase64String((byte[])member));
            else if (member is DateTime) said = Text(Time((DateTime)member, true));
            else if (member is bool) said = Text((bool)member ? "true" : "false");
            else if (member is char) said = Text(((int)(char)member).ToString());
            else if (member is double) said = Text(((double)member).ToString("R", Plain));
            else if (member != null) said = Text(Convert.ToString(member, Plain));
            else if (field.FieldType == typeof(bool?)) said = "null";
            if (said != null) members.Add(Text(field.Name) + ":" + said);
        }
        return "{" + first + string.Join(",", members) + "}";
    }
}
