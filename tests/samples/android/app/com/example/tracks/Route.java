package com.example.tracks;

import java.util.ArrayList;
import java.util.List;

/** A route from point to point. */
final class Route {
    /** A point. */
    static final class Point {
        final double latitude;
        final double longitude;

        Point(double latitude, double longitude) {
            this.latitude = latitude;
            this.longitude = longitude;
        }
    }

    private final List<Point> points = new ArrayList<>();

    private Route() {}

    /** Parses a text like {@code 47.37,8.54 47.38,8.55}. */
    static Route read(String text) {
        Route route = new Route();
        for (String point : text.split(" ")) {
            route.points.add(point(point));
        }
        return route;
    }

    int length() {
        return points.size();
    }

    private static Point point(String text) {
        int comma = text.indexOf(',');
        if (comma < 0) {
            throw new IllegalArgumentException("no point: " + text);
        }
        double latitude = Double.parseDouble(text.substring(0, comma));
        return new Point(latitude, Double.parseDouble(text.substring(comma + 1)));
    }
}
