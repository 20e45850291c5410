select page, count(*) as views, count(distinct visitor) as visitors from {{ ref('stg_events') }} group by page
